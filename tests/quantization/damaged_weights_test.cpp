// Weights of every format behind damaged headers: each is read, or refused by a `LoadError`.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "arrays/gguf.h"
#include "arrays/gguf_header.h"
#include "arrays/safetensors.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "mlx/mlx.h"
#include "quantization/mxfp4_blocks.h"
#include "quantization/stored_matrix.h"
#include "support/damaged_files.h"
#include "support/temporary_folder.h"

namespace espalier::quantization {
namespace {

namespace fs = std::filesystem;

/// Undamaged files of every format, which the fuzzers start from too.
fs::path corpus() { return fs::path(ESPALIER_SOURCE_DIR) / "fuzz" / "corpus"; }

std::string read_file(const fs::path& path) {
  const auto file = base::MappedFile::open(path);
  return {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()};
}

/// Packs the matrix as a model does that expects this shape, and reads its values.
void read_matrix(const arrays::TensorFile& file, const WeightSchemes& schemes,
                 const std::string& module, int rows, int columns) {
  const auto lookup = [&](const std::string& name) {
    // A name without the suffix is a tensor's own.
    const bool bare = name == module + ".weight" && file.find(module) != nullptr;
    const auto* tensor = file.find(bare ? module : name);
    return tensor == nullptr ? std::nullopt : std::optional(*tensor);
  };
  std::vector<int> all(static_cast<std::size_t>(rows));
  for (int row = 0; row < rows; ++row) all[static_cast<std::size_t>(row)] = row;
  const StoredMatrix matrix = find_matrix(lookup, schemes, file.path(), module, rows, columns);
  kernels::unpack(pack(matrix, all, columns)).eval();
}

/// Matrices lie in chunks of so many bytes; that of the last file may still stand.
constexpr std::size_t huge_page_chunk = 36'000'000;

/// Damages the first `header` bytes of a file, again and again, and hands the outcome to `use`.
void check_damaged(const std::string& bytes, std::size_t header,
                   const std::function<void(const fs::path&)>& use) {
  const tests::TemporaryFolder folder;
  std::mt19937_64 random(20240229);
  int refused = 0;
  for (int i = 0; i < tests::damaged_variants(); ++i) {
    std::string damaged = bytes.substr(0, header);
    tests::flip_bits(damaged, random);
    const fs::path path = folder.write("damaged", damaged + bytes.substr(header));
    tests::largest_request = 0;
    mlx::core::reset_peak_memory();
    const std::size_t before = mlx::core::get_active_memory();
    try {
      use(path);
    } catch (const base::LoadError& error) {
      ++refused;
      EXPECT_STRNE(error.what(), "");
    }
    ASSERT_LE(tests::largest_request, bytes.size() + tests::memory_allowance);
    ASSERT_LE(mlx::core::get_peak_memory(),
              before + bytes.size() + tests::memory_allowance + huge_page_chunk);
  }
  EXPECT_GT(refused, tests::damaged_variants() / 4);
}

class DamagedWeights : public testing::TestWithParam<const char*> {};

/// The fuzzers' files begin with the shape that the model expects and the configuration's method.
TEST_P(DamagedWeights, AreReadOrRefused) {
  const std::string input = read_file(corpus() / "weights_fuzz" / GetParam());
  const int rows = 1 + static_cast<unsigned char>(input[0]) % 64;
  const int columns = 32 * (1 + static_cast<unsigned char>(input[1]) % 8);
  WeightSchemes schemes{.method = static_cast<WeightSchemes::Method>(input[2])};
  schemes.scale_block = {16, 32};
  const std::string bytes = input.substr(3);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  check_damaged(bytes, sizeof length + length, [&](const fs::path& path) {
    const auto file = name_mxfp4_as_mlx(arrays::open_safetensors(path));
    std::set<std::string> modules;
    for (const auto& tensor : file->tensors()) {
      modules.insert(tensor.name.substr(0, tensor.name.find('.')));
    }
    for (const std::string& module : modules) read_matrix(*file, schemes, module, rows, columns);
  });
}

INSTANTIATE_TEST_SUITE_P(Schemes, DamagedWeights,
                         testing::Values("affine", "mxfp4", "mxfp8", "nvfp4", "nvfp4_packed", "fp8",
                                         "int8", "compressed", "gptq", "awq", "nf4", "gpt_oss"),
                         [](const auto& info) { return std::string(info.param); });

TEST(DamagedGguf, OfEveryTypeIsReadOrRefused) {
  const std::string bytes = read_file(corpus() / "gguf_fuzz" / "every_type.gguf");
  const std::size_t header =
      arrays::parse_gguf_header(std::as_bytes(std::span(bytes)), "every_type.gguf").data;
  check_damaged(bytes, header, [](const fs::path& path) {
    const auto file = arrays::GgufFile::open(path);
    for (const arrays::TensorView& tensor : file->tensors()) {
      constexpr std::int64_t most = 1 << 20;
      const auto& shape = tensor.shape;
      if (shape.size() != 2 || std::min(shape[0], shape[1]) < 1) continue;
      if (std::max(shape[0], shape[1]) > most) continue;
      const std::string& name = tensor.name;
      const std::string module =
          name.ends_with(".weight") ? name.substr(0, name.size() - std::strlen(".weight")) : name;
      read_matrix(*file, {}, module, static_cast<int>(shape[0]), static_cast<int>(shape[1]));
    }
  });
}

}  // namespace
}  // namespace espalier::quantization
