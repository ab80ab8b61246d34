#pragma once

#include <cstdint>

namespace espalier::generation {

/// How much KV memory an engine has.
struct KvBudget {
  int kv_blocks;
  int context;  // positions a request may use
};

/// Enough KV blocks for `max_running` requests of `context` tokens, at most what `available_bytes`
/// hold; when those do not hold even one such request, the context is what they do hold (0 when not
/// a single KV block).
KvBudget plan_kv_budget(std::uint64_t available_bytes, std::uint64_t bytes_per_token,
                        int kv_block_tokens, int max_running, int context);

}  // namespace espalier::generation
