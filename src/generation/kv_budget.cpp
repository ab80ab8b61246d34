#include "generation/kv_budget.h"

#include <algorithm>
#include <limits>

namespace espalier::generation {

KvBudget plan_kv_budget(std::uint64_t available_bytes, std::uint64_t bytes_per_token,
                        int kv_block_tokens, int max_running, int context) {
  const std::uint64_t tokens_per_block = static_cast<std::uint64_t>(kv_block_tokens);
  const std::uint64_t blocks_per_request =
      (static_cast<std::uint64_t>(context) + tokens_per_block - 1) / tokens_per_block;
  const std::uint64_t fitting =
      available_bytes / std::max<std::uint64_t>(bytes_per_token * tokens_per_block, 1);
  const std::uint64_t blocks =
      std::min({static_cast<std::uint64_t>(max_running) * blocks_per_request, fitting,
                static_cast<std::uint64_t>(std::numeric_limits<int>::max())});
  return {.kv_blocks = static_cast<int>(blocks),
          .context = static_cast<int>(
              std::min(static_cast<std::uint64_t>(context), blocks * tokens_per_block))};
}

}  // namespace espalier::generation
