#pragma once

#include "models/descriptor.h"

namespace espalier::models {

/// What DeepSeek's checkpoints, and others after them, call the matrices of latent attention.
inline LatentNames latent_names() {
  return {.q = "self_attn.q_proj",
          .q_a = "self_attn.q_a_proj",
          .q_a_norm = "self_attn.q_a_layernorm",
          .q_b = "self_attn.q_b_proj",
          .kv_a = "self_attn.kv_a_proj_with_mqa",
          .kv_a_norm = "self_attn.kv_a_layernorm",
          .kv_b = "self_attn.kv_b_proj"};
}

}  // namespace espalier::models
