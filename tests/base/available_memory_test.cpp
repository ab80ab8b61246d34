#include "base/available_memory.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace espalier::base {
namespace {

namespace fs = std::filesystem;

/// A folder tree of small files standing in for /proc and /sys.
class AvailableMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::temp_directory_path() / ("espalier-memory-" + std::string(test->name()));
    fs::remove_all(root_);
    write("meminfo", "MemTotal:       16000 kB\nMemFree:  100 kB\nMemAvailable:    8000 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::uint64_t read() const {
    return available_memory(root_ / "meminfo", root_ / "self", root_ / "mount");
  }

  fs::path root_;
};

TEST_F(AvailableMemoryTest, IsWhatTheSystemCallsAvailable) { EXPECT_EQ(read(), 8000U * 1024); }

TEST_F(AvailableMemoryTest, IsNothingWhereTheSystemDoesNotTell) {
  fs::remove(root_ / "meminfo");
  EXPECT_EQ(read(), 0U);
}

TEST_F(AvailableMemoryTest, RespectsControlGroupsOfVersion2) {
  write("self", "0::/slice/unit\n");
  write("mount/slice/memory.max", "5000000\n");
  write("mount/slice/memory.current", "2000000\n");
  write("mount/slice/memory.stat", "anon 100\ninactive_file 500000\nactive_file 7\n");
  write("mount/slice/unit/memory.max", "max\n");
  write("mount/slice/unit/memory.current", "1000000\n");
  EXPECT_EQ(read(), 3500000U);
  write("mount/slice/unit/memory.max", "1000000\n");
  EXPECT_EQ(read(), 0U);
}

TEST_F(AvailableMemoryTest, RespectsControlGroupsOfVersion1) {
  write("self", "4:memory:/unit\n");
  write("mount/memory/unit/memory.limit_in_bytes", "3000000\n");
  write("mount/memory/unit/memory.usage_in_bytes", "1000000\n");
  write("mount/memory/unit/memory.stat", "inactive_file 1\ntotal_inactive_file 200000\n");
  EXPECT_EQ(read(), 2200000U);
  write("mount/memory/unit/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(read(), 8000U * 1024);
}

TEST(AvailableMemory, OfThisSystemIsSomething) { EXPECT_GT(available_memory(), 0U); }

}  // namespace
}  // namespace espalier::base
