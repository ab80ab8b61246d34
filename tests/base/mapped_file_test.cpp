#include "base/mapped_file.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::base {
namespace {

namespace fs = std::filesystem;

std::string failure(const fs::path& path) {
  try {
    MappedFile::open(path);
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST(MappedFile, ShowsTheBytesAlsoAfterRelease) {
  const fs::path path = fs::path(testing::TempDir()) / "espalier-mapped";
  std::string text(20000, 'x');
  text[9000] = 'y';
  std::ofstream(path) << text;
  const auto file = MappedFile::open(path);
  const auto as_text = [&] {
    const auto bytes = file->bytes();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(as_text(), text);
  file->release(file->bytes().subspan(5, 15000));
  file->release(file->bytes().subspan(5, 10));
  EXPECT_EQ(as_text(), text);
  fs::remove(path);
}

TEST(MappedFile, EmptyFileHasNoBytes) {
  const fs::path path = fs::path(testing::TempDir()) / "espalier-empty";
  std::ofstream(path).close();
  EXPECT_TRUE(MappedFile::open(path)->bytes().empty());
  fs::remove(path);
}

TEST(MappedFile, NamesWhatItCannotOpen) {
  EXPECT_NE(failure("/nowhere/at-all").find("/nowhere/at-all"), std::string::npos);
  EXPECT_NE(failure(testing::TempDir()).find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace espalier::base
