#include "base/short_turns.h"

#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace espalier::base {
namespace {

TEST(ShortTurns, LeaveThePriorityAlone) {
  std::thread([] {  // what a thread asks for ends with it
    ASSERT_EQ(setpriority(PRIO_PROCESS, 0, 3), 0);
    ask_for_short_turns();
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), 3);
    std::thread([] { EXPECT_EQ(getpriority(PRIO_PROCESS, 0), 3); }).join();
  })
      .join();
}

}  // namespace
}  // namespace espalier::base
