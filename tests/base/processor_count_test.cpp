#include "base/processor_count.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace espalier::base {
namespace {

namespace fs = std::filesystem;

/// A folder tree of small files standing in for /proc and /sys.
class ProcessorCountTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::temp_directory_path() / ("espalier-" + std::string(test->name()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }

  fs::path root_;
};

TEST_F(ProcessorCountTest, CountsSiblingsOnce) {
  write("cpu0/topology/thread_siblings_list", "0,2\n");
  write("cpu1/topology/thread_siblings_list", "1,3\n");
  write("cpu2/topology/thread_siblings_list", "0,2\n");
  write("cpu3/topology/thread_siblings_list", "1,3\n");
  EXPECT_EQ(count_cores({0, 1, 2, 3}, root_), 2);
  EXPECT_EQ(count_cores({0, 2}, root_), 1);
  EXPECT_EQ(count_cores({1, 2}, root_), 2);
  EXPECT_EQ(count_cores({7, 8}, root_), 2);
  EXPECT_EQ(count_cores({}, root_), 0);
}

TEST_F(ProcessorCountTest, ReadsSmallestQuotaOfVersion2) {
  write("self", "0::/slice/unit\n");
  write("mount/slice/cpu.max", "150000 100000\n");
  write("mount/slice/unit/cpu.max", "max 100000\n");
  EXPECT_EQ(control_group_quota(root_ / "self", root_ / "mount"), 1.5);
  write("mount/slice/unit/cpu.max", "50000 100000\n");
  EXPECT_EQ(control_group_quota(root_ / "self", root_ / "mount"), 0.5);
}

TEST_F(ProcessorCountTest, ReadsTheMountWhenAContainerHidesThePath) {
  write("self", "0::/not/there\n");
  write("mount/cpu.max", "400000 100000\n");
  EXPECT_EQ(control_group_quota(root_ / "self", root_ / "mount"), 4.0);
}

TEST_F(ProcessorCountTest, ReadsVersion1) {
  write("self", "5:cpu,cpuacct:/unit\n4:memory:/unit\n");
  write("mount/cpu,cpuacct/unit/cpu.cfs_quota_us", "-1\n");
  write("mount/cpu,cpuacct/unit/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(control_group_quota(root_ / "self", root_ / "mount"));
  write("mount/cpu,cpuacct/unit/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(control_group_quota(root_ / "self", root_ / "mount"), 2.5);
}

TEST_F(ProcessorCountTest, NoQuotaWithoutControlGroups) {
  EXPECT_FALSE(control_group_quota(root_ / "self", root_ / "mount"));
}

TEST(AllowedProcessors, HasTheOneWeRunOn) { EXPECT_FALSE(allowed_processors().empty()); }

TEST(MoveOffProcessors, KeepsTheMask) {
  const auto allowed = allowed_processors();
  for (const int processor : allowed) {
    move_off_processors(allowed, {processor});
    EXPECT_EQ(allowed_processors(), allowed);
  }
  move_off_processors(allowed, allowed);
  EXPECT_EQ(allowed_processors(), allowed);
}

}  // namespace
}  // namespace espalier::base
