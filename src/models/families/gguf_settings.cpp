#include "models/families/gguf_settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <variant>

#include "models/families/dense.h"

namespace espalier::models {
namespace {

using nlohmann::json;

enum class Kind { integer, number, boolean };

/// A setting in both containers.
struct Setting {
  const char* gguf;
  const char* config;
  Kind kind = Kind::integer;
};

constexpr std::array settings = {
    Setting{"embedding_length", "hidden_size"},
    Setting{"block_count", "num_hidden_layers"},
    Setting{"attention.head_count", "num_attention_heads"},
    Setting{"context_length", "max_position_embeddings"},
    Setting{"attention.key_length", "head_dim"},
    Setting{"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number},
    Setting{"attention.layer_norm_epsilon", "layer_norm_eps", Kind::number},
    Setting{"attention.sliding_window", "sliding_window"},
    Setting{"attention.q_lora_rank", "q_lora_rank"},
    Setting{"attention.kv_lora_rank", "kv_lora_rank"},
    Setting{"expert_used_count", "num_experts_per_tok"},
    Setting{"expert_feed_forward_length", "moe_intermediate_size"},
    Setting{"expert_shared_count", "n_shared_experts"},
    Setting{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    Setting{"expert_weights_scale", "routed_scaling_factor", Kind::number},
    Setting{"expert_weights_norm", "norm_topk_prob", Kind::boolean},
    Setting{"expert_group_count", "n_group"},
    Setting{"expert_group_used_count", "topk_group"},
    Setting{"leading_dense_block_count", "first_k_dense_replace"},
    Setting{"rope.freq_base", "rope_theta", Kind::number},
    Setting{"full_attention_interval", "full_attention_interval"},
};

json read(const GgufReader& file, const Setting& setting) {
  switch (setting.kind) {
    case Kind::integer:
      return file.integer(setting.gguf);
    case Kind::number:
      return file.number(setting.gguf);
    case Kind::boolean:
      break;
  }
  return file.boolean(setting.gguf, false);
}

/// `rope_scaling` of a file that has some; null else.
json read_scaling(const GgufReader& file) {
  const std::string type = file.string("rope.scaling.type", "none");
  const double factor = file.number("rope.scaling.factor", 1);
  const int original =
      file.integer("rope.scaling.original_context_length", file.integer("context_length"));
  const double magnitude = file.number("rope.scaling.attn_factor", 1);
  if (type == "none" || (type == "linear" && factor == 1)) {
    return nullptr;
  }
  if (type != "yarn" && type != "linear") {
    file.fail("rope.scaling.type", "is '" + type + "', which is not supported");
  }
  json scaling = {{"rope_type", type}, {"factor", factor}};
  if (type == "yarn") {
    scaling["original_max_position_embeddings"] = original;
    scaling["beta_fast"] = file.number("rope.scaling.yarn_beta_fast", 32);
    scaling["beta_slow"] = file.number("rope.scaling.yarn_beta_slow", 1);
    if (magnitude != 1) {
      scaling["attention_factor"] = magnitude * (0.1 * std::log(factor) + 1);
    }
  }
  return scaling;
}

}  // namespace

ConfigReader gguf_settings(const GgufReader& file, const std::string& model_type, const json& extra,
                           std::initializer_list<const char*> foreign) {
  json config = extra;
  const auto add = [&](const char* key, const json& value) {
    if (!value.is_null()) {
      config.emplace(key, value);
    }
  };
  for (const Setting& setting : settings) {
    if (file.contains(setting.gguf)) {
      add(setting.config, read(file, setting));
    }
  }
  for (const auto& [gguf, key] : {std::pair{"attention.head_count_kv", "num_key_value_heads"},
                                  std::pair{"feed_forward_length", "intermediate_size"}}) {
    const std::vector<int> list = file.integers(gguf);
    if (!list.empty()) {
      add(key, *std::ranges::max_element(list));
    }
  }
  const int head_dim = file.integer("attention.key_length", 0);
  const int rotated = file.integer("rope.dimension_count", head_dim);
  const int value_dim = file.integer("attention.value_length", head_dim);
  if (head_dim > 0 && rotated < head_dim) {
    add("partial_rotary_factor", static_cast<double>(rotated) / head_dim);
  }
  if (value_dim != head_dim && !config.contains("v_head_dim")) {
    file.fail("attention.value_length", "differs from that of keys, which is not supported");
  }
  if (const int experts = file.integer("expert_count", 0); experts > 0) {
    add("num_experts", experts);
  }
  add("model_type", model_type);
  add("hidden_act", "silu");
  add("vocab_size", file.tensor_rows("token_embd.weight"));
  add("tie_word_embeddings", !file.has_tensor("output.weight"));
  add("rope_scaling", read_scaling(file));
  add("eos_token_id", file.end_tokens());
  for (const char* key : foreign) {
    config.erase(key);
  }
  return {file.path(), std::move(config)};
}

json gguf_mamba2_settings(const GgufReader& file) {
  const int heads = file.integer("ssm.time_step_rank");
  return {{"mamba_n_heads", heads},
          {"mamba_d_head", heads > 0 ? file.integer("ssm.inner_size") / heads : 0},
          {"mamba_n_groups", file.integer("ssm.group_count")},
          {"mamba_d_state", file.integer("ssm.state_size")},
          {"mamba_d_conv", file.integer("ssm.conv_kernel")},
          {"mamba_conv_bias", file.any_layer_has("ssm_conv1d.bias")}};
}

std::vector<bool> gguf_attending_layers(const GgufReader& file) {
  std::vector<int> heads = file.integers("attention.head_count_kv");
  const auto layers = static_cast<std::size_t>(file.integer("block_count"));
  if (heads.size() == 1) {
    heads.resize(layers, heads.front());
  }
  if (heads.size() != layers) {
    file.fail("attention.head_count_kv", "has another number of entries than there are layers");
  }
  std::vector<bool> attends(layers);
  std::transform(heads.begin(), heads.end(), attends.begin(), [](int count) { return count > 0; });
  return attends;
}

void use_gguf_tensors(Descriptor& decoder) {
  decoder.names = gguf_names();
  ExpertNames& names = decoder.names.experts;
  names.router = "ffn_gate_inp";
  names.correction_bias = "exp_probs_b.bias";
  names.input = {"ffn_gate_exps", "ffn_up_exps"};
  names.down = "ffn_down_exps";
  names.shared_input = {"ffn_gate_shexp", "ffn_up_shexp"};
  names.shared_down = "ffn_down_shexp";
  names.shared_gate = "ffn_gate_inp_shexp";
  for (LayerDescriptor& layer : decoder.layers) {
    if (ExpertsDescriptor* experts = layer.experts(); experts != nullptr) {
      experts->layout = ExpertsDescriptor::Layout::stacked;
      experts->gate_up = ExpertsDescriptor::GateUp::halves;
    }
  }
}

std::vector<std::pair<std::string, std::string>> gguf_mamba_names() {
  return {{"in_proj", "ssm_in"}, {"conv1d", "ssm_conv1d"},   {"x_proj", "ssm_x"},
          {"dt_proj", "ssm_dt"}, {"dt_bias", "ssm_dt.bias"}, {"A_log", "ssm_a"},
          {"D", "ssm_d"},        {"norm", "ssm_norm"},       {"out_proj", "ssm_out"}};
}

}  // namespace espalier::models
