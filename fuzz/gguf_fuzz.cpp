// Any bytes as a GGUF file: either a LoadError, or a file whose every tensor and key can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <variant>

#include "arrays/gguf.h"
#include "base/error.h"
#include "memory_file.h"
#include "tensor_reads.h"

namespace {

template <typename Getter>
void read(Getter getter) {
  try {
    static_cast<void>(getter());
  } catch (const espalier::base::LoadError&) {
  }
}

void read_metadata(const espalier::arrays::GgufMetadata& metadata) {
  for (const auto& [key, value] : metadata.values()) {
    if (metadata.find(key) != &value) {
      std::abort();
    }
    read([&] { return metadata.require_integer(key); });
    read([&] { return metadata.require_number(key); });
    read([&] { return metadata.require_string(key); });
    read([&] { return metadata.boolean(key); });
    read([&] { return metadata.integers(key); });
    read([&] { return metadata.numbers(key); });
    read([&] { return metadata.strings(key); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const espalier::fuzz::MemoryFile input(data, size);
  try {
    const auto file = espalier::arrays::GgufFile::open(input.path());
    espalier::fuzz::read_tensors(*file);
    read_metadata(file->metadata());
  } catch (const espalier::base::LoadError&) {
  }
  return 0;
}
