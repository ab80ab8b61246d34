// Any bytes as a checkpoint whose modules are stored in some scheme: either a LoadError, or
// matrices whose every code can be read.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "arrays/safetensors.h"
#include "base/error.h"
#include "memory_file.h"
#include "quantization/mxfp4_blocks.h"
#include "quantization/stored_matrix.h"

namespace {

using espalier::arrays::TensorFile;
using espalier::quantization::WeightSchemes;

void read_module(const TensorFile& file, const WeightSchemes& schemes, const std::string& module,
                 int rows, int columns) {
  const auto lookup = [&](const std::string& name) {
    const auto* tensor = file.find(name);
    return tensor == nullptr ? std::nullopt : std::optional(*tensor);
  };
  try {
    const auto matrix =
        espalier::quantization::find_matrix(lookup, schemes, "input", module, rows, columns);
    if (matrix.whole) return;
    std::vector<espalier::kernels::BlockCodes> codes(static_cast<std::size_t>(columns) / 32);
    for (int row = 0; row < rows; ++row) {
      matrix.read(row, 0, columns / 32, codes.data());
    }
  } catch (const espalier::base::LoadError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  // Two bytes say what shape the model expects, one the method of the configuration.
  const int rows = 1 + data[0] % 64;
  const int columns = 32 * (1 + data[1] % 8);
  WeightSchemes schemes{.method = static_cast<WeightSchemes::Method>(data[2] % 7)};
  schemes.scale_block = {16, 32};
  const espalier::fuzz::MemoryFile input(data + 3, size - 3);
  try {
    const auto file =
        espalier::quantization::name_mxfp4_as_mlx(espalier::arrays::open_safetensors(input.path()));
    std::set<std::string> modules;
    for (const auto& tensor : file->tensors()) {
      modules.insert(tensor.name.substr(0, tensor.name.find('.')));
    }
    for (const std::string& module : modules) {
      read_module(*file, schemes, module, rows, columns);
    }
  } catch (const espalier::base::LoadError&) {
  }
  return 0;
}
