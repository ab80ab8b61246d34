#include <cmath>
#include <string>
#include <vector>

#include "mlx/mlx.h"
#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

void set_recurrent_gemma_names(TensorNames& names) {
  names.final_norm = "model.final_norm";
  names.attention_norm = "temporal_pre_norm";
  names.mlp_norm = "channel_pre_norm";
  names.qkv = {"temporal_block.q_proj", "temporal_block.k_proj", "temporal_block.v_proj"};
  names.attention_output = "temporal_block.o_proj";
  names.mlp_input = {"mlp_block.gate_proj", "mlp_block.up_proj"};
  names.mlp_down = "mlp_block.down_proj";
  names.recurrent = "temporal_block.";
}

}  // namespace

// Griffin: two layers of linear recurrences, then one of local attention.
Descriptor read_recurrent_gemma(ConfigReader& config) {
  config.set_defaults({{"partial_rotary_factor", 0.5}, {"tie_word_embeddings", true}});
  if (!config.contains("max_position_embeddings")) {
    config.set_defaults({{"max_position_embeddings", 8192}});
  }
  Descriptor decoder = dense_decoder(config);
  NormDescriptor norm = rms_norm(config);
  norm.weight_offset = 1.0F;
  set_pre_norms(decoder, norm);
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_activation"));
  set_mlp_bias(decoder, true);
  set_recurrent_gemma_names(decoder.names);
  const int width = config.integer("lru_width", decoder.width);
  const int heads = decoder.layers.front().attention().heads;
  if (width % heads != 0) {
    config.fail("lru_width", "is not a multiple of the heads");
  }
  const RgLruDescriptor recurrence{.channels = width,
                                   .heads = heads,
                                   .taps = config.integer("conv1d_width", 4),
                                   .activation = recurrent_activation(config, "hidden_activation")};
  std::vector<std::string> kinds = config.strings("block_types");
  if (kinds.empty()) {
    kinds = {"recurrent", "recurrent", "attention"};
  }
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    LayerDescriptor& layer = decoder.layers[i];
    layer.mlp().hidden = config.integer("intermediate_size") / 2;
    layer.attention().window = config.integer("attention_window_size", 2048);
    layer.attention().qkv_bias = config.boolean("attention_bias", false);
    layer.attention().output_bias = true;
    const std::string& kind = kinds[i % kinds.size()];
    if (kind == "recurrent") {
      layer.mixer = RecurrentDescriptor(recurrence);
    } else if (kind != "attention") {
      config.fail("block_types", "names '" + kind + "', which is not supported");
    }
  }
  // The reference keeps the factor in bf16.
  decoder.embedding_scale =
      static_cast<float>(mlx::core::bfloat16_t(std::sqrt(static_cast<float>(decoder.width))));
  decoder.logit_softcap = static_cast<float>(config.number("logits_soft_cap", 30));
  ignore_keys(config, {"final_w_init_variance_scale", "w_init_variance_scale"});
  return decoder;
}

}  // namespace espalier::models
