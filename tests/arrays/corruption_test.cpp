#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "arrays/gguf.h"
#include "arrays/gguf_header.h"
#include "arrays/safetensors.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"

namespace {

/// Bytes of the largest request to the allocator since this was set to zero.
std::atomic<std::size_t> largest_request = 0;

void* allocate(std::size_t size) {
  std::size_t largest = largest_request;
  while (size > largest && !largest_request.compare_exchange_weak(largest, size)) {
  }
  return std::malloc(std::max<std::size_t>(size, 1));
}

}  // namespace

void* operator new(std::size_t size) {
  void* memory = allocate(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }

// GCC takes an inlined one for a mismatch.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace espalier::arrays {
namespace {

/// How many damaged files each test opens: 200, or what `ESPALIER_DAMAGED_FILES` says.
int variants() {
  const char* wanted = std::getenv("ESPALIER_DAMAGED_FILES");
  return wanted == nullptr ? 200 : std::atoi(wanted);
}

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

/// A place to damage: near the start, near the end, or anywhere. Most of a header is vocabulary,
/// where damage does not show.
std::size_t place(std::size_t size, std::mt19937_64& random) {
  const std::size_t near = std::min<std::size_t>(size, 16384);
  switch (random() % 3) {
    case 0:
      return random() % std::min<std::size_t>(size, 1024);
    case 1:
      return size - 1 - random() % near;
    default:
      return random() % size;
  }
}

/// Opens damaged variants of a file that is `header` followed by other bytes up to `size`: every
/// fourth is cut short within the header, the others have 1 to 4 bits of it flipped. Each opens or
/// is refused by a `LoadError` that names the file, without asking for more memory at once than the
/// file has bytes and 64 MB; anything else fails the test.
template <typename Open>
void check_variants(const std::string& header, std::size_t size, Open open) {
  constexpr std::size_t allowance = 64'000'000;
  const tests::TemporaryFolder folder;
  std::mt19937_64 random(20240229);
  int refused = 0;
  for (int i = 0; i < variants(); ++i) {
    std::string bytes = header;
    const bool cut = i % 4 == 0;
    if (cut) bytes.resize(place(header.size(), random));
    for (std::uint64_t flips = 1 + random() % 4; !cut && flips > 0; --flips) {
      bytes[place(header.size(), random)] ^= static_cast<char>(1U << (random() % 8));
    }
    const auto path = folder.write("damaged", bytes);
    // Zeros stand for the tensors, without taking room on disk.
    if (!cut) std::filesystem::resize_file(path, size);
    largest_request = 0;
    try {
      touch_tensors(*open(path));
      EXPECT_FALSE(cut) << "opened though cut to " << bytes.size() << " bytes";
    } catch (const base::LoadError& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("damaged"), std::string::npos) << error.what();
    }
    ASSERT_LE(largest_request, (cut ? bytes.size() : size) + allowance);
  }
  EXPECT_GT(refused, variants() / 2);
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
