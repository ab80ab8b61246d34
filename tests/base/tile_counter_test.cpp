#include "base/tile_counter.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace espalier::base {
namespace {

TEST(TileShares, WorkersBeginWithTheirOwnAndTakeHalfOfWhatIsLeft) {
  TileShares tiles(20, 2);
  std::size_t first;
  std::size_t last;
  EXPECT_EQ(tiles.first(1), 10U);
  ASSERT_TRUE(tiles.next(1, first, last));
  EXPECT_EQ(first, 10U);
  EXPECT_EQ(last, 15U);
  ASSERT_TRUE(tiles.next(1, first, last));
  EXPECT_EQ(first, 15U);
  EXPECT_EQ(last, 18U);
}

TEST(TileShares, OneWorkerTakesAllWhenTheOthersDoNotCome) {
  TileShares tiles(7, 3);
  std::vector<int> taken(7);
  std::size_t first;
  for (std::size_t last; tiles.next(2, first, last);) {
    for (; first < last; ++first) ++taken[first];
  }
  EXPECT_EQ(taken, std::vector<int>(7, 1));
}

TEST(TileShares, StartOverWithOtherNumbers) {
  TileShares tiles(5, 2);
  std::size_t first;
  std::size_t last;
  ASSERT_TRUE(tiles.next(0, first, last));
  for (const int workers : {2, 3, 1}) {
    tiles.reset(9, workers);
    std::vector<int> taken(9);
    while (tiles.next(0, first, last)) {
      for (; first < last; ++first) ++taken[first];
    }
    EXPECT_EQ(taken, std::vector<int>(9, 1));
  }
}

TEST(TileShares, SeveralThreadsTakeEachTileOnce) {
  constexpr int workers = 4;
  constexpr std::size_t count = 10007;
  TileShares tiles(count, workers);
  std::vector<std::atomic<int>> taken(count);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      std::size_t first;
      for (std::size_t last; tiles.next(worker, first, last);) {
        for (; first < last; ++first) ++taken[first];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::atomic<int>& times : taken) EXPECT_EQ(times, 1);
}

}  // namespace
}  // namespace espalier::base
