#pragma once

namespace espalier::kernels {

/// Tokens per KV block of the pool.
inline constexpr int kv_block_tokens = 32;

}  // namespace espalier::kernels
