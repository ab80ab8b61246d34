#include "models/print.h"

#include <array>
#include <cstdio>
#include <string_view>
#include <utility>

#include "models/print_recurrent.h"

namespace espalier::models {
namespace {

using nlohmann::ordered_json;

/// With as many digits as say which f32 it is.
ordered_json number(float value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.7g", static_cast<double>(value));
  return ordered_json::parse(text.data());
}

void add(ordered_json& target, const char* key, int value, int off = 0) {
  if (value != off) {
    target[key] = value;
  }
}

void add(ordered_json& target, const char* key, float value, float off) {
  if (value != off) {
    target[key] = number(value);
  }
}

void add(ordered_json& target, const char* key, bool value) {
  if (value) {
    target[key] = true;
  }
}

std::string_view name_of(layers::RouterRule::Score score) {
  constexpr std::array<std::string_view, 3> names = {"softmax", "sigmoid", "sparse_mixer"};
  return names.at(static_cast<std::size_t>(score));
}

ordered_json describe(const NormDescriptor& norm) {
  ordered_json result = {{"kind", norm.kind == NormDescriptor::Kind::rms ? "rms" : "layer"},
                         {"eps", number(norm.eps)}};
  add(result, "weight_offset", norm.weight_offset, 0.0F);
  add(result, "bias", norm.bias);
  if (!norm.weight) {
    result["weight"] = false;
  }
  return result;
}

void add(ordered_json& target, const char* key, const std::optional<NormDescriptor>& norm) {
  if (norm) {
    target[key] = describe(*norm);
  }
}

ordered_json describe(const RopeDescriptor& rope) {
  ordered_json result = {{"dims", rope.dims},
                         {"pairs", rope.interleaved ? "neighbours" : "halves"}};
  if (!rope.inv_freq.empty()) {
    result["first_frequency"] = number(rope.inv_freq.front());
    result["last_frequency"] = number(rope.inv_freq.back());
  }
  add(result, "magnitude", rope.magnitude, 1.0F);
  return result;
}

ordered_json describe(const AttentionDescriptor& part) {
  ordered_json result = {{"heads", part.heads},
                         {"kv_heads", part.kv_heads},
                         {"head_dim", part.head_dim},
                         {"scale", number(part.scale)}};
  add(result, "value_dim", part.value_dim);
  add(result, "window", part.window);
  add(result, "chunk", part.chunk);
  add(result, "softcap", part.softcap, 0.0F);
  add(result, "qkv_bias", part.qkv_bias);
  add(result, "output_bias", part.output_bias);
  add(result, "bias_scale", part.bias_scale, 1.0F);
  add(result, "qkv_limit", part.qkv_limit, 0.0F);
  if (part.grouped_qkv) {
    result["grouped_qkv"] = true;
    add(result, "qkv_groups", part.grouped_qkv->groups);
    add(result, "values_before_keys", part.grouped_qkv->values_before_keys);
  }
  add(result, "sinks", part.sinks);
  add(result, "value_scale", part.value_scale, 1.0F);
  add(result, "keys_are_values", part.keys_are_values);
  if (part.shares_kv_of) {
    result["shares_kv_of"] = *part.shares_kv_of;
  }
  if (!part.alibi_slopes.empty()) {
    result["alibi"] = {{"first_slope", number(part.alibi_slopes.front())},
                       {"last_slope", number(part.alibi_slopes.back())}};
  }
  if (part.qk_norm) {
    result["qk_norm"] = describe(part.qk_norm->norm);
    result["qk_norm"]["over"] =
        part.qk_norm->scope == QkNormDescriptor::Scope::head ? "head" : "projection";
    add(result["qk_norm"], "after_rope", part.qk_norm->after_rope);
    add(result["qk_norm"], "weights_of_each_head",
        part.qk_norm->weights != QkNormDescriptor::Weights::shared);
  }
  add(result, "value_norm", part.value_norm);
  if (part.rope) {
    result["rope"] = describe(*part.rope);
  }
  if (part.query_growth) {
    result["query_growth"] = {{"beta", number(part.query_growth->beta)},
                              {"interval", number(part.query_growth->interval)},
                              {"offset", number(part.query_growth->offset)}};
  }
  if (part.output_gate) {
    result["output_gate"] =
        part.output_gate->place == OutputGateDescriptor::Place::own ? "own" : "in_query";
  }
  add(result, "output_norm", part.output_norm);
  return {{"attention", std::move(result)}};
}

ordered_json describe(const LatentAttentionDescriptor& part) {
  ordered_json result = {{"heads", part.heads},         {"query_rank", part.query_rank},
                         {"kv_rank", part.kv_rank},     {"nope_dim", part.nope_dim},
                         {"rope_dim", part.rope_dim},   {"value_dim", part.value_dim},
                         {"scale", number(part.scale)}, {"rope", describe(part.rope)},
                         {"norm", describe(part.norm)}};
  add(result, "bias", part.bias);
  return {{"latent_attention", std::move(result)}};
}

ordered_json describe(const RecurrentDescriptor& part) { return to_json(part); }

ordered_json describe(const EncoderAttentionDescriptor& part) {
  ordered_json result = {{"heads", part.heads},
                         {"kv_heads", part.kv_heads},
                         {"head_dim", part.head_dim},
                         {"scale", number(part.scale)}};
  add(result, "reach", part.reach);
  add(result, "qkv_bias", part.qkv_bias);
  add(result, "output_bias", part.output_bias);
  add(result, "qk_norm", part.qk_norm);
  if (part.rope) {
    result["rope"] = describe(*part.rope);
  }
  return {{"encoder_attention", std::move(result)}};
}

ordered_json describe(const ParallelMixerDescriptor& part) {
  ordered_json result = describe(part.attention);
  result.update(to_json(RecurrentDescriptor(part.mamba)));
  add(result, "attention_scale", part.attention_scale, 1.0F);
  add(result, "mamba_scale", part.mamba_scale, 1.0F);
  return {{"parallel_mixers", std::move(result)}};
}

ordered_json describe(const MlpDescriptor& part) {
  ordered_json result = {{"hidden", part.hidden},
                         {"activation", activation_name(part.activation)},
                         {"gated", part.gated}};
  add(result, "bias", part.bias);
  add(result, "hidden_norm", part.hidden_norm);
  add(result, "gate_scale", part.gate_scale, 1.0F);
  if (part.gate_cutoff) {
    result["gate_cutoff"] = number(part.gate_cutoff->deviations);
  }
  return {{"mlp", std::move(result)}};
}

ordered_json describe(const RouterDescriptor& router) {
  const layers::RouterRule& rule = router.rule;
  ordered_json result = {
      {"experts", rule.experts}, {"chosen", rule.chosen}, {"score", name_of(rule.score)}};
  if (rule.groups > 1) {
    result["groups"] = rule.groups;
    result["chosen_groups"] = rule.chosen_groups;
    result["group_score"] =
        rule.group_score == layers::RouterRule::GroupScore::best ? "best" : "best_two";
  }
  add(result, "normalize", rule.normalize);
  add(result, "scale", rule.scale, 1.0F);
  add(result, "tolerance", rule.tolerance, 0.0F);
  add(result, "bias", router.bias);
  add(result, "correction_bias", router.correction_bias);
  add(result, "expert_scales", router.expert_scales);
  return result;
}

ordered_json describe(const ExpertsDescriptor& part) {
  constexpr std::array layouts = {"each", "stacked", "transposed", "below"};
  ordered_json result = {{"router", describe(part.router)},
                         {"hidden", part.hidden},
                         {"activation", activation_name(part.activation)},
                         {"gated", part.gated},
                         {"layout", layouts.at(static_cast<std::size_t>(part.layout))}};
  add(result, "bias", part.bias);
  add(result, "weights_scale_input", part.weights_scale_input);
  if (part.gate_up == ExpertsDescriptor::GateUp::alternating) {
    result["gate_up"] = "alternating";
  }
  if (part.shared) {
    result["shared"] = describe(*part.shared)["mlp"];
    add(result["shared"], "gate", part.shared_gate);
  }
  if (part.latent) {
    result["latent"] = {{"size", part.latent->size}};
    add(result["latent"], "bias", part.latent->bias);
  }
  return {{"experts", std::move(result)}};
}

ordered_json describe(const ParallelFeedForwardDescriptor& part) {
  ordered_json result = describe(part.mlp);
  result.update(describe(part.experts));
  result["norm"] = describe(part.norm);
  return {{"parallel_feed_forward", std::move(result)}};
}

ordered_json describe(const std::monostate&) { return ordered_json::object(); }

ordered_json describe(const LayerDescriptor& layer) {
  const auto part = [](const auto& descriptor) { return describe(descriptor); };
  ordered_json result = ordered_json::object();
  add(result, "attention_norm", layer.attention_norm);
  result.update(std::visit(part, layer.mixer));
  add(result, "attention_post_norm", layer.attention_post_norm);
  add(result, "mlp_norm", layer.mlp_norm);
  result.update(std::visit(part, layer.feed_forward));
  add(result, "mlp_post_norm", layer.mlp_post_norm);
  add(result, "residual_scale", layer.residual_scale, 1.0F);
  add(result, "norms_take_sums", layer.norms_take_sums);
  add(result, "mixer_scale", layer.mixer_scale, 1.0F);
  add(result, "mlp_scale", layer.mlp_scale, 1.0F);
  if (layer.normed_residual) {
    result["normed_residual"] = {{"mixer_factor", number(layer.normed_residual->mixer_factor)},
                                 {"mlp_factor", number(layer.normed_residual->mlp_factor)}};
  }
  add(result, "parallel", layer.parallel);
  if (layer.layer_input) {
    result["layer_input"] = {{"size", layer.layer_input->size},
                             {"activation", activation_name(layer.layer_input->activation)}};
    add(result["layer_input"], "vocabulary", layer.layer_input->vocabulary);
  }
  if (layer.laurel) {
    result["laurel"] = {{"rank", layer.laurel->rank}};
  }
  add(result, "output_scale", layer.output_scale);
  return result;
}

/// "3" or "3-7".
std::string range(std::size_t first, std::size_t last) {
  std::string text = std::to_string(first);
  if (last > first) {
    text.append("-").append(std::to_string(last));
  }
  return text;
}

void write(const ordered_json& object, int depth, std::string& text) {
  for (const auto& [key, value] : object.items()) {
    text.append(static_cast<std::size_t>(depth) * 2, ' ').append(key).append(":");
    if (value.is_object()) {
      text += "\n";
      write(value, depth + 1, text);
    } else {
      text.append(" ").append(value.is_string() ? value.get<std::string>() : value.dump());
      text.append("\n");
    }
  }
}

}  // namespace

std::string_view activation_name(layers::Activation activation) {
  constexpr std::array<std::string_view, 10> names = {
      "silu",         "gelu_tanh", "gelu_erf", "gelu_quick",    "relu",
      "relu_squared", "sigmoid",   "tanh",     "clamped_swish", "xielu"};
  return names.at(static_cast<std::size_t>(activation));
}

ordered_json to_json(const Descriptor& descriptor) {
  ordered_json result = {{"family", descriptor.family},
                         {"vocabulary", descriptor.vocabulary},
                         {"width", descriptor.width},
                         {"context", descriptor.context}};
  add(result, "embedding_width", descriptor.embedding_width);
  add(result, "embedding_scale", descriptor.embedding_scale, 1.0F);
  if (descriptor.positions) {
    result["positions"] = {{"rows", descriptor.positions->rows},
                           {"offset", descriptor.positions->offset}};
  }
  add(result, "token_types", descriptor.token_types);
  add(result, "embedding_norm", descriptor.embedding_norm);
  if (descriptor.alt_up) {
    result["alt_up"] = {{"streams", descriptor.alt_up->streams},
                        {"active", descriptor.alt_up->active}};
    add(result["alt_up"], "output_scale", descriptor.alt_up->output_scale);
  }
  ordered_json layers = ordered_json::object();
  for (std::size_t first = 0; first < descriptor.layers.size();) {
    const ordered_json layer = describe(descriptor.layers[first]);
    std::size_t last = first;
    while (last + 1 < descriptor.layers.size() && describe(descriptor.layers[last + 1]) == layer) {
      ++last;
    }
    layers[range(first, last)] = layer;
    first = last + 1;
  }
  result["layers"] = std::move(layers);
  result["final_norm"] = describe(descriptor.final_norm);
  add(result, "tied_head", descriptor.tied_head);
  add(result, "head_bias", descriptor.head_bias);
  add(result, "logit_scale", descriptor.logit_scale, 1.0F);
  add(result, "logit_softcap", descriptor.logit_softcap, 0.0F);
  if (!descriptor.end_tokens.empty()) {
    result["end_tokens"] = descriptor.end_tokens;
  }
  return result;
}

std::string to_text(const ordered_json& object) {
  std::string text;
  write(object, 0, text);
  return text;
}

std::size_t idle_parameters(const Descriptor& descriptor) {
  std::size_t total = 0;
  for (const LayerDescriptor& layer : descriptor.layers) {
    const ExpertsDescriptor* experts = layer.experts();
    if (experts == nullptr) {
      continue;
    }
    const layers::RouterRule& rule = experts->router.rule;
    const int width = experts->latent ? experts->latent->size : descriptor.width;
    const std::size_t matrix =
        static_cast<std::size_t>(experts->hidden) * static_cast<std::size_t>(width);
    total +=
        matrix * (experts->gated ? 3 : 2) * static_cast<std::size_t>(rule.experts - rule.chosen);
  }
  return total;
}

}  // namespace espalier::models
