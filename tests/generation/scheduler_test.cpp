#include "generation/scheduler.h"

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace espalier::generation {
namespace {

constexpr SchedulerOptions roomy{
    .max_running = 8, .prefill_chunk = 512, .kv_blocks = 1000, .kv_block_tokens = 32};

using Plan = std::vector<ScheduledRows>;

TEST(Scheduler, PrefillsInChunksThenDecodes) {
  SchedulerOptions options = roomy;
  options.prefill_chunk = 4;
  Scheduler scheduler(options);
  scheduler.enqueue(7, 10, 20);
  EXPECT_EQ(scheduler.plan(), (Plan{{7, 0, 4, false}}));
  EXPECT_EQ(scheduler.plan(), (Plan{{7, 4, 4, false}}));
  EXPECT_EQ(scheduler.plan(), (Plan{{7, 8, 2, true}}));
  EXPECT_EQ(scheduler.plan(), (Plan{{7, 10, 1, true}}));
  EXPECT_EQ(scheduler.plan(), (Plan{{7, 11, 1, true}}));
}

TEST(Scheduler, SharesTheChunkOldestFirstAndDecodesEveryStep) {
  SchedulerOptions options = roomy;
  options.prefill_chunk = 4;
  Scheduler scheduler(options);
  scheduler.enqueue(1, 2, 9);
  EXPECT_EQ(scheduler.plan(), (Plan{{1, 0, 2, true}}));
  scheduler.enqueue(2, 3, 9);
  scheduler.enqueue(3, 4, 9);
  scheduler.enqueue(4, 1, 9);
  EXPECT_EQ(scheduler.plan(), (Plan{{1, 2, 1, true}, {2, 0, 3, true}, {3, 0, 1, false}}));
  EXPECT_EQ(scheduler.plan(),
            (Plan{{1, 3, 1, true}, {2, 3, 1, true}, {3, 1, 3, true}, {4, 0, 1, true}}));
}

TEST(Scheduler, StartsAtMostMaxRunningInOrder) {
  SchedulerOptions options = roomy;
  options.max_running = 2;
  Scheduler scheduler(options);
  for (const int id : {1, 2, 3}) {
    scheduler.enqueue(id, 1, 2);
  }
  EXPECT_EQ(scheduler.plan().size(), 2U);
  EXPECT_EQ(scheduler.running(), 2);
  EXPECT_EQ(scheduler.waiting(), 1);
  scheduler.remove(1);
  EXPECT_EQ(scheduler.plan(), (Plan{{2, 1, 1, true}, {3, 0, 1, true}}));
}

TEST(Scheduler, ReservesKvBlocksForAllThatARequestMayHold) {
  SchedulerOptions options = roomy;
  options.kv_blocks = 4;
  Scheduler scheduler(options);
  scheduler.enqueue(1, 1, 64);  // 2 KV blocks
  scheduler.enqueue(2, 1, 65);  // 3
  scheduler.enqueue(3, 1, 1);   // 1, but it came later
  EXPECT_EQ(scheduler.plan().size(), 1U);
  EXPECT_EQ(scheduler.reserved_kv_blocks(), 2);
  scheduler.remove(1);
  EXPECT_EQ(scheduler.reserved_kv_blocks(), 0);
  EXPECT_EQ(scheduler.plan().size(), 2U);
  EXPECT_EQ(scheduler.reserved_kv_blocks(), 4);
}

TEST(Scheduler, RemovesWaitingRequests) {
  SchedulerOptions options = roomy;
  options.max_running = 1;
  Scheduler scheduler(options);
  scheduler.enqueue(1, 1, 2);
  scheduler.enqueue(2, 1, 2);
  scheduler.enqueue(3, 1, 2);
  scheduler.plan();
  scheduler.remove(2);
  scheduler.remove(1);
  EXPECT_EQ(scheduler.plan(), (Plan{{3, 0, 1, true}}));
  scheduler.remove(3);
  scheduler.remove(3);
  EXPECT_TRUE(scheduler.plan().empty());
}

TEST(Scheduler, RejectsWhatCouldNeverRun) {
  Scheduler scheduler(roomy);
  EXPECT_THROW(scheduler.enqueue(1, 1, 32001), std::logic_error);
  EXPECT_THROW(scheduler.enqueue(1, 0, 5), std::logic_error);
  EXPECT_THROW(scheduler.enqueue(1, 5, 4), std::logic_error);
  EXPECT_NO_THROW(scheduler.enqueue(1, 1, 32000));
}

// Random arrivals, lengths and departures: the limits hold in every step, the rows of each request
// follow one another without gap, a decoding request is in every step, and all get done.
TEST(Scheduler, InvariantsHoldUnderRandomLoad) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    const SchedulerOptions options{.max_running = pick(1, 6),
                                   .prefill_chunk = pick(1, 40),
                                   .kv_blocks = pick(4, 12),
                                   .kv_block_tokens = 16};
    Scheduler scheduler(options);
    struct Request {
      int prompt, most, computed = 0;
    };
    std::map<std::uint64_t, Request> open;
    std::uint64_t next = 0;
    std::uint64_t last_started = 0;
    constexpr std::uint64_t total = 60;
    for (int step = 0; next < total || !open.empty(); ++step) {
      ASSERT_LT(step, 20000);
      while (next < total && pick(0, 2) == 0) {
        const int prompt = pick(1, 60);
        const int most = prompt + pick(0, 4);
        scheduler.enqueue(next, prompt, most);
        open[next++] = {prompt, most};
      }
      const auto rows = scheduler.plan();
      ASSERT_EQ(rows.empty(), open.empty());
      ASSERT_LE(scheduler.running(), options.max_running);
      ASSERT_LE(scheduler.reserved_kv_blocks(), options.kv_blocks);
      ASSERT_EQ(scheduler.running() + scheduler.waiting(), static_cast<int>(open.size()));
      int prefill = 0;
      std::map<std::uint64_t, bool> in_step;
      for (const ScheduledRows& scheduled : rows) {
        Request& request = open.at(scheduled.id);
        ASSERT_FALSE(in_step[scheduled.id]);
        in_step[scheduled.id] = true;
        ASSERT_EQ(scheduled.position, request.computed);
        if (request.computed < request.prompt) {
          prefill += scheduled.rows;
        } else {
          ASSERT_EQ(scheduled.rows, 1);
        }
        if (scheduled.position == 0) {
          ASSERT_GE(scheduled.id, last_started);
          last_started = scheduled.id;
        }
        request.computed += scheduled.rows;
        ASSERT_EQ(scheduled.samples, request.computed >= request.prompt);
      }
      ASSERT_LE(prefill, options.prefill_chunk);
      for (auto entry = open.begin(); entry != open.end();) {
        const auto& [id, request] = *entry;
        if (request.computed > request.prompt) {
          ASSERT_TRUE(in_step[id]);
        }
        if (request.computed == request.most || pick(0, 40) == 0) {
          scheduler.remove(id);
          entry = open.erase(entry);
        } else {
          ++entry;
        }
      }
    }
    EXPECT_EQ(scheduler.reserved_kv_blocks(), 0);
    EXPECT_EQ(scheduler.running() + scheduler.waiting(), 0);
  }
}

}  // namespace
}  // namespace espalier::generation
