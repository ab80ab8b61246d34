#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/tile_counter.h"

namespace espalier::base {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, CallsTheCallerAndNoWorkerTwice) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::atomic<int>> calls(GetParam());
    pool.run([&](int worker) { ++calls[worker]; });
    EXPECT_EQ(calls[0].load(), 1);
    for (const auto& count : calls) EXPECT_LE(count.load(), 1);
  }
}

/// Waits inside a run until every worker of the pool is in it.
void gather(const ThreadPool& pool, std::atomic<int>& inside) {
  inside.fetch_add(1);
  while (inside.load() < pool.size()) std::this_thread::yield();
}

TEST_P(ThreadPoolTest, EveryWorkerComesWhenThereIsTime) {
  ThreadPool pool(GetParam());
  for (int i = 0; i < 100; ++i) {
    std::atomic<int> inside{0};
    pool.run([&](int) { gather(pool, inside); });
    EXPECT_EQ(inside.load(), GetParam());
  }
}

TEST_P(ThreadPoolTest, CallerIsWorkerZero) {
  ThreadPool pool(GetParam());
  std::thread::id id;
  pool.run([&](int worker) {
    if (worker == 0) id = std::this_thread::get_id();
  });
  EXPECT_EQ(id, std::this_thread::get_id());
}

TEST_P(ThreadPoolTest, BarrierSeparatesPhases) {
  ThreadPool pool(GetParam());
  const int phases = 500;
  std::vector<std::atomic<int>> count(phases);
  std::atomic<bool> ordered{true};
  std::atomic<int> inside{0};
  pool.run([&](int) {
    gather(pool, inside);
    for (int phase = 0; phase < phases; ++phase) {
      count[phase].fetch_add(1);
      pool.barrier();
      if (count[phase].load() != pool.size()) ordered = false;
    }
  });
  EXPECT_TRUE(ordered);
}

TEST_P(ThreadPoolTest, WhoComesLateFindsBarriersPassable) {
  ThreadPool pool(GetParam());
  for (int i = 0; i < 2000; ++i) {
    std::atomic<int> before{0};
    std::atomic<int> after{0};
    std::atomic<bool> ordered{true};
    pool.run([&](int) {
      before.fetch_add(1);
      pool.barrier();
      const int inside = before.load();
      after.fetch_add(1);
      pool.barrier();
      if (before.load() != inside || after.load() != inside) ordered = false;
    });
    EXPECT_TRUE(ordered);
  }
}

TEST_P(ThreadPoolTest, WakesParkedWorkers) {
  ThreadPool pool(GetParam());
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> inside{0};
    pool.run([&](int) { gather(pool, inside); });
    EXPECT_EQ(inside.load(), GetParam());
  }
}

TEST_P(ThreadPoolTest, WaitsForSlowWorkers) {
  ThreadPool pool(GetParam());
  std::atomic<int> inside{0};
  std::atomic<int> done{0};
  pool.run([&](int worker) {
    gather(pool, inside);
    if (worker != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    done.fetch_add(1);
  });
  EXPECT_EQ(done.load(), GetParam());
}

TEST_P(ThreadPoolTest, ConcurrentRunsTakeTurns) {
  ThreadPool pool(GetParam());
  std::atomic<int> inside{0};
  std::atomic<bool> alone{true};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        pool.run([&](int worker) {
          if (worker != 0) return;
          if (inside.fetch_add(1) != 0) alone = false;
          inside.fetch_sub(1);
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(alone);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(TileCounter, HandsOutEachTileOnce) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> taken(1000);
  TileCounter tiles(taken.size());
  pool.run([&](int) {
    for (std::size_t tile; tiles.next(tile);) taken[tile].fetch_add(1);
  });
  for (const auto& count : taken) EXPECT_EQ(count.load(), 1);
  tiles.reset(1);
  std::size_t tile = 7;
  EXPECT_TRUE(tiles.next(tile));
  EXPECT_EQ(tile, 0U);
  EXPECT_FALSE(tiles.next(tile));
}

TEST(ComputePool, TakesTheSizeItIsGiven) {
  set_compute_threads(3);
  EXPECT_EQ(compute_pool().size(), 3);
  EXPECT_THROW(set_compute_threads(0), UsageError);
  EXPECT_THROW(set_compute_threads(100'000), UsageError);
  EXPECT_EQ(compute_pool().size(), 3);
  set_compute_threads(default_compute_threads());
  EXPECT_EQ(compute_pool().size(), default_compute_threads());
}

}  // namespace
}  // namespace espalier::base
