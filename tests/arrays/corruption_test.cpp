#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "arrays/gguf.h"
#include "arrays/gguf_header.h"
#include "arrays/safetensors.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "support/damaged_files.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"

namespace espalier::arrays {
namespace {

std::string text_of(const base::MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// Touches the ends of what the file says are tensors, so that a wrong view would show.
void touch_tensors(const TensorFile& file) {
  volatile unsigned sum = 0;
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.bytes.empty()) continue;
    sum = sum + static_cast<unsigned>(tensor.bytes.front() ^ tensor.bytes.back());
  }
}

/// Opens damaged variants of a file that is `header` followed by other bytes up to `size`: every
/// fourth is cut short within the header, the others have 1 to 4 bits of it flipped. Each opens or
/// is refused by a `LoadError` that names the file, without asking for more memory at once than the
/// file has bytes and 64 MB; anything else fails the test.
template <typename Open>
void check_variants(const std::string& header, std::size_t size, Open open) {
  const tests::TemporaryFolder folder;
  std::mt19937_64 random(20240229);
  int refused = 0;
  for (int i = 0; i < tests::damaged_variants(); ++i) {
    std::string bytes = header;
    const bool cut = i % 4 == 0;
    if (cut) {
      bytes.resize(tests::damaged_place(header.size(), random));
    } else {
      tests::flip_bits(bytes, random);
    }
    const auto path = folder.write("damaged", bytes);
    // Zeros stand for the tensors, without taking room on disk.
    if (!cut) std::filesystem::resize_file(path, size);
    tests::largest_request = 0;
    try {
      touch_tensors(*open(path));
      EXPECT_FALSE(cut) << "opened though cut to " << bytes.size() << " bytes";
    } catch (const base::LoadError& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("damaged"), std::string::npos) << error.what();
    }
    ASSERT_LE(tests::largest_request, (cut ? bytes.size() : size) + tests::memory_allowance);
  }
  EXPECT_GT(refused, tests::damaged_variants() / 2);
}

TEST(Corruption, DamagedGguf) {
  const auto model = tests::test_model();
  if (!model) GTEST_SKIP() << "the default model is not there";
  const auto file = base::MappedFile::open(*model);
  const auto data = parse_gguf_header(file->bytes(), model->string()).data;
  check_variants(text_of(*file).substr(0, data), file->bytes().size(),
                 [](const auto& path) { return GgufFile::open(path); });
}

TEST(Corruption, DamagedSafetensors) {
  const auto folder = tests::fixture_folder("tiny-text");
  if (!folder) GTEST_SKIP() << "shared fixtures are not there";
  const auto file = base::MappedFile::open(*folder / "a" / "llama" / "model.safetensors");
  const std::string bytes = text_of(*file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  check_variants(bytes.substr(0, sizeof length + length), bytes.size(),
                 [](const auto& path) { return open_safetensors(path); });
}

}  // namespace
}  // namespace espalier::arrays
