#include "base/wake_word.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace espalier::base {
namespace {

TEST(WakeWord, DoesNotWaitForWhatHasHappened) {
  WakeWord word;
  const WakeWord::Value old = word.value();
  word.advance();
  EXPECT_EQ(word.wait(old, true), old + 1);
  EXPECT_EQ(word.wait(old, false), old + 1);
}

class WakeWordTest : public testing::TestWithParam<bool> {};

TEST_P(WakeWordTest, WakesAllSleepers) {
  WakeWord word;
  std::vector<std::thread> sleepers;
  std::vector<WakeWord::Value> seen(4, 0);
  for (WakeWord::Value& value : seen) {
    sleepers.emplace_back([&] { value = word.wait(0, GetParam()); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  word.advance();
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(seen, std::vector<WakeWord::Value>(4, 1));
}

TEST_P(WakeWordTest, NoAdvanceIsLost) {
  WakeWord ping;
  WakeWord pong;
  constexpr WakeWord::Value rounds = 2000;
  std::thread other([&] {
    for (WakeWord::Value i = 0; i < rounds; ++i) {
      ping.wait(i, GetParam());
      pong.advance();
    }
  });
  for (WakeWord::Value i = 0; i < rounds; ++i) {
    ping.advance();
    EXPECT_EQ(pong.wait(i, GetParam()), i + 1);
  }
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Spinning, WakeWordTest, testing::Bool());

}  // namespace
}  // namespace espalier::base
