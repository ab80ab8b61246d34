#include "models/module_builder.h"

namespace espalier::models {

layers::EncoderAttention load_encoder_attention(ModuleBuilder& builder,
                                                const EncoderAttentionDescriptor& part,
                                                const std::string& prefix) {
  const TensorNames& names = builder.names();
  const int width = builder.descriptor().width;
  const int q_size = part.heads * part.head_dim;
  const int kv_size = part.kv_heads * part.head_dim;
  layers::EncoderAttention module{
      .qkv_proj =
          builder.linear(prefix, names.qkv, {q_size, kv_size, kv_size}, width, part.qkv_bias),
      .o_proj = builder.linear(prefix, {names.attention_output}, {width}, q_size, part.output_bias),
      .options = {.heads = part.heads,
                  .kv_heads = part.kv_heads,
                  .head_dim = part.head_dim,
                  .scale = part.scale,
                  .reach = part.reach}};
  if (part.qk_norm) {
    module.options.q_norm =
        *builder.norm(*part.qk_norm, prefix + names.q_norm, part.head_dim).rms();
    module.options.k_norm =
        *builder.norm(*part.qk_norm, prefix + names.k_norm, part.head_dim).rms();
  }
  if (part.rope) {
    module.options.rope = kernels::Rope{.dims = part.rope->dims,
                                        .interleaved = part.rope->interleaved,
                                        .inv_freq = layers::to_array(part.rope->inv_freq),
                                        .magnitude = part.rope->magnitude};
  }
  return module;
}

}  // namespace espalier::models
