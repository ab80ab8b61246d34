#include "kernels/cuda_compiler.h"

#include <map>
#include <mutex>
#include <stdexcept>

#include <dlfcn.h>

namespace espalier::kernels {
namespace {

using Program = struct NvrtcProgram*;

/// A function of NVRTC in this process; null where it is not there.
template <class Function>
Function* nvrtc(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// One program, destroyed at the end. Results of NVRTC's functions: 0 for success.
class Compilation {
 public:
  explicit Compilation(const std::string& source) {
    const auto create =
        nvrtc<int(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
            "nvrtcCreateProgram");
    if (create == nullptr ||
        create(&program_, source.c_str(), "espalier.cu", 0, nullptr, nullptr) != 0) {
      throw std::runtime_error("[compile_cuda] NVRTC made no program");
    }
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;
  ~Compilation() { nvrtc<int(Program*)>("nvrtcDestroyProgram")(&program_); }

  std::string run(const std::string& architecture) {
    const std::string option = "--gpu-architecture=" + architecture;
    const char* options[] = {option.c_str()};
    if (nvrtc<int(Program, int, const char* const*)>("nvrtcCompileProgram")(program_, 1, options) !=
        0) {
      throw std::runtime_error("[compile_cuda] " +
                               text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog"));
    }
    return text("nvrtcGetCUBINSize", "nvrtcGetCUBIN");
  }

 private:
  std::string text(const char* size_function, const char* function) {
    std::size_t size = 0;
    nvrtc<int(Program, std::size_t*)>(size_function)(program_, &size);
    std::string bytes(size, '\0');
    nvrtc<int(Program, char*)>(function)(program_, bytes.data());
    return bytes;
  }

  Program program_ = nullptr;
};

}  // namespace

bool has_cuda_compiler() { return dlsym(RTLD_DEFAULT, "nvrtcCompileProgram") != nullptr; }

const std::string& compile_cuda(const std::string& name, const std::string& source,
                                const std::string& architecture) {
  static std::mutex mutex;
  static std::map<std::string, std::string> compiled;
  const std::lock_guard lock(mutex);
  const auto found = compiled.find(name);
  if (found != compiled.end()) {
    return found->second;
  }
  return compiled.emplace(name, Compilation(source).run(architecture)).first->second;
}

}  // namespace espalier::kernels
