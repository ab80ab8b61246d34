// Times the attention node over shapes and depths: attention_bench [heads kv_heads head_dim].
// Prints, for each case, the median time of one node, the rate of multiply-adds, and how fast keys
// and values were read.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/cpu_features.h"

namespace {

namespace mx = mlx::core;
using namespace espalier::kernels;

struct Case {
  int sequences;
  int rows;   // of each sequence
  int depth;  // keys before them
};

constexpr int layers = 8;  // so that a pool does not stay in the cache from one run to the next

double seconds(const AttentionOptions& options, const Case& work) {
  const int blocks_each = (work.depth + work.rows + kv_block_tokens - 1) / kv_block_tokens;
  const int blocks = blocks_each * work.sequences;
  const int d = options.head_dim;
  std::vector<KvLayer> pools;
  for (int i = 0; i < layers; ++i) {
    pools.push_back({mx::astype(mx::random::normal({blocks, options.kv_heads, d, kv_block_tokens}),
                                mx::float16),
                     mx::astype(mx::random::normal({blocks, options.kv_heads, kv_block_tokens, d}),
                                mx::float16)});
    mx::eval(pools.back().keys, pools.back().values);
  }
  AttentionBatch batch;
  for (int i = 0; i < work.sequences; ++i) {
    std::vector<int> table(blocks_each);
    std::iota(table.begin(), table.end(), i * blocks_each);
    batch.push_back({i * work.rows, work.rows, work.depth, table});
  }
  const auto shared = std::make_shared<const AttentionBatch>(batch);
  auto qkv =
      mx::random::normal({work.sequences * work.rows, (options.heads + 2 * options.kv_heads) * d});
  mx::eval(qkv);
  std::vector<double> times;
  for (int run = 0; run < 15; ++run) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<mx::array> results;
    for (auto& pool : pools) results.push_back(attention(qkv, pool, shared, options));
    mx::eval(results);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count() / layers);
  }
  std::nth_element(times.begin(), times.begin() + 7, times.end());
  return times[7];
}

}  // namespace

int main(int argc, char** argv) {
  AttentionOptions options{.heads = 9, .kv_heads = 3, .head_dim = 64, .scale = 0.125F};
  if (argc == 4) {
    options.heads = std::atoi(argv[1]);
    options.kv_heads = std::atoi(argv[2]);
    options.head_dim = std::atoi(argv[3]);
  }
  std::vector<float> inv_freq(options.head_dim / 2);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = std::pow(1e-5F, static_cast<float>(i) / static_cast<float>(inv_freq.size()));
  }
  options.rope =
      Rope{options.head_dim, true, mx::array(inv_freq.data(), {static_cast<int>(inv_freq.size())})};
  std::printf("%s, %d threads, %d heads, %d kv heads of %d\n",
              std::string(to_string(instruction_set())).c_str(),
              espalier::base::compute_pool().size(), options.heads, options.kv_heads,
              options.head_dim);
  for (const Case work : {Case{1, 1, 0}, Case{1, 1, 512}, Case{1, 1, 2048}, Case{1, 1, 7936},
                          Case{8, 1, 512}, Case{1, 64, 0}, Case{1, 512, 0}, Case{1, 512, 2048}}) {
    const double time = seconds(options, work);
    const double keys = work.sequences * (work.depth + (work.rows + 1) / 2.0);
    const double multiply_adds = keys * work.rows * options.heads * options.head_dim * 2;
    const double bytes = static_cast<double>(work.sequences) * (work.depth + work.rows) *
                         options.kv_heads * options.head_dim * 4;
    std::printf("%d x %3d rows at depth %4d: %9.1f us  %6.1f G multiply-adds/s  %6.1f GB/s\n",
                work.sequences, work.rows, work.depth, time * 1e6, multiply_adds / time / 1e9,
                bytes / time / 1e9);
  }
}
