#include "conversion/gguf_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "layers/weight_reader.h"
#include "models/config_reader.h"
#include "models/gguf_reader.h"
#include "models/registry.h"
#include "models/rope.h"

namespace espalier::conversion {
namespace {

using base::LoadError;
using models::Descriptor;
using nlohmann::ordered_json;

constexpr int gemma_pattern = 6;
constexpr double gemma_local_theta = 10000;

/// The parameters with which all Llama 3 checkpoints stretch RoPE; GGUF keeps only the factors that
/// follow from them.
constexpr models::Llama3Rope llama3_usual{
    .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 8192};

/// The double that a person would write for an f32 setting: 1e-05, not 9.999999747378752e-06.
double shortest(double value) {
  std::array<char, 32> text;
  const auto written =
      std::to_chars(text.data(), text.data() + text.size(), static_cast<float>(value));
  double result = value;
  std::from_chars(text.data(), written.ptr, result);
  return result;
}

double wave_length(double theta, std::size_t index, std::size_t count) {
  return 2 * std::numbers::pi *
         std::pow(theta, static_cast<double>(index) / static_cast<double>(count));
}

/// Llama 3's factor for each frequency of `dims / 2`.
std::vector<float> llama3_factors(double theta, int dims, const models::Llama3Rope& rope) {
  std::vector<float> factors;
  const auto count = static_cast<std::size_t>(dims / 2);
  for (std::size_t i = 0; i < count; ++i) {
    const double wave = wave_length(theta, i, count);
    double factor = 1;
    if (wave > rope.original_context / rope.low_freq_factor) {
      factor = rope.factor;
    } else if (wave >= rope.original_context / rope.high_freq_factor) {
      const double smooth = (rope.original_context / wave - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      factor = 1 / ((1 - smooth) / rope.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

bool close(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::abs(x - y) <= 1e-4F * std::max(std::abs(x), std::abs(y));
  });
}

/// Parameters that give these factors, Llama 3's usual ones if they do. Between the wave lengths
/// that stay and those that are stretched in full, the share s of the first in 1 / factor is
/// context / (high - low) / wave - low / (high - low); all three may be multiplied by one number,
/// so that low is 1.
std::optional<models::Llama3Rope> find_llama3(double theta, const std::vector<float>& factors) {
  const int dims = static_cast<int>(2 * factors.size());
  models::Llama3Rope rope = llama3_usual;
  rope.factor = shortest(*std::ranges::max_element(factors));
  if (close(llama3_factors(theta, dims, rope), factors)) return rope;
  struct Point {
    double frequency;
    double share;
  };
  std::vector<Point> between;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double share = (1.0 / factors[i] - 1 / rope.factor) / (1 - 1 / rope.factor);
    if (share < 1e-4 || share > 1 - 1e-4) continue;
    between.push_back({1 / wave_length(theta, i, factors.size()), share});
  }
  if (between.size() < 2) return std::nullopt;
  const double slope = (between.front().share - between.back().share) /
                       (between.front().frequency - between.back().frequency);
  const double offset = slope * between.front().frequency - between.front().share;
  constexpr double digits = 1000;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = std::round(digits * (1 + 1 / offset)) / digits;
  rope.original_context = std::round(slope / offset);
  if (!(offset > 0) || !close(llama3_factors(theta, dims, rope), factors)) return std::nullopt;
  return rope;
}

/// Only layers of attention and one feed-forward part have counterparts here.
void check_dense(const Descriptor& model, const std::string& path) {
  for (const auto& layer : model.layers) {
    if (std::holds_alternative<models::AttentionDescriptor>(layer.mixer) &&
        std::holds_alternative<models::MlpDescriptor>(layer.feed_forward)) {
      continue;
    }
    throw LoadError(path + ": only dense models can change between safetensors and GGUF");
  }
}

/// Collects the metadata of one model.
class GgufMaker {
 public:
  GgufMaker(const Source& source, const Layout& layout)
      : path_((source.path / "config.json").string()),
        layout_(layout),
        config_(path_, nlohmann::json(source.config)),
        model_(models::describe_model(config_)) {
    check_dense(model_, path_);
  }

  GgufSettings make() {
    const models::AttentionDescriptor& attention = model_.layers.front().attention();
    const std::uint64_t head_dim = static_cast<std::uint64_t>(attention.head_dim);
    integer("block_count", model_.layers.size());
    integer("context_length", context());
    integer("embedding_length", static_cast<std::uint64_t>(model_.width));
    integer("feed_forward_length", static_cast<std::uint64_t>(model_.layers.front().mlp().hidden));
    integer("attention.head_count", static_cast<std::uint64_t>(attention.heads));
    integer("attention.head_count_kv", static_cast<std::uint64_t>(attention.kv_heads));
    integer("attention.key_length", head_dim);
    integer("attention.value_length", head_dim);
    integer("rope.dimension_count", head_dim);
    integer("vocab_size", static_cast<std::uint64_t>(model_.vocabulary));
    number("attention.layer_norm_rms_epsilon", model_.final_norm.eps);
    add_windows();
    add_rope(attention.head_dim);
    if (model_.logit_softcap != 0) number("final_logit_softcapping", model_.logit_softcap);
    if (attention.softcap != 0) number("attn_logit_softcapping", attention.softcap);
    check_scale(attention);
    const auto wanted =
        layout_.norm_plus_one ? layers::Activation::gelu_tanh : layers::Activation::silu;
    if (model_.layers.front().mlp().activation != wanted) fail("its activation");
    settings_.heads = {attention.heads, attention.kv_heads};
    return std::move(settings_);
  }

 private:
  std::string key(std::string_view name) const {
    return std::string(layout_.architecture) + "." + std::string(name);
  }
  void integer(std::string_view name, std::uint64_t value) {
    settings_.values.emplace_back(key(name), value);
  }
  void number(std::string_view name, double value) {
    settings_.values.emplace_back(key(name), value);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw LoadError(path_ + ": GGUF's " + std::string(layout_.architecture) + " cannot state " +
                    what);
  }

  bool has_windows() const { return layout_.four_norms; }

  /// Where GGUF knows no windows, positions stop where a window would begin to matter.
  std::uint64_t context() const {
    int context = model_.context;
    if (!has_windows()) {
      for (const auto& layer : model_.layers) {
        if (layer.attention().window > 0) context = std::min(context, layer.attention().window);
      }
    }
    return static_cast<std::uint64_t>(context);
  }

  void add_windows() {
    if (!has_windows()) return;
    const int usual = layout_.model_type == "gemma2" ? 2 : gemma_pattern;
    int window = 0;
    for (const auto& layer : model_.layers) window = std::max(window, layer.attention().window);
    const auto follows = [&](std::size_t pattern) {
      for (std::size_t i = 0; i < model_.layers.size(); ++i) {
        const bool slides = model_.layers[i].attention().window > 0;
        if (slides != ((i + 1) % pattern != 0)) return false;
      }
      return true;
    };
    integer("attention.sliding_window", static_cast<std::uint64_t>(window));
    if (follows(static_cast<std::size_t>(usual))) return;
    for (std::size_t pattern = 1; pattern <= model_.layers.size() + 1; ++pattern) {
      if (!follows(pattern)) continue;
      if (usual == 2) fail("the order of its sliding layers");
      integer("attention.sliding_window_pattern", pattern);
      return;
    }
    fail("the order of its sliding layers");
  }

  void add_rope(int head_dim) {
    const bool gemma3 = layout_.model_type == "gemma3_text";
    const models::RopeSettings rope =
        gemma3 ? models::read_rope(config_, "full_attention", 1e6) : models::read_rope(config_);
    if (rope.partial != 1) fail("a RoPE over part of each head");
    number("rope.freq_base", rope.theta);
    if (gemma3) {
      const double local = config_.contains("rope_parameters")
                               ? models::read_rope(config_, "sliding_attention").theta
                               : config_.number("rope_local_base_freq", gemma_local_theta);
      if (local != gemma_local_theta) number("rope.freq_base_swa", local);
    }
    if (const auto* linear = std::get_if<models::LinearRope>(&rope.scaling)) {
      settings_.values.emplace_back(key("rope.scaling.type"), std::string("linear"));
      number("rope.scaling.factor", linear->factor);
    } else if (const auto* llama3 = std::get_if<models::Llama3Rope>(&rope.scaling)) {
      std::vector<float> factors = llama3_factors(rope.theta, head_dim, *llama3);
      const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(factors.size())};
      settings_.tensors.emplace_back("rope_freqs.weight", std::move(factors), shape,
                                     arrays::StorageType::f32);
    } else if (const auto* yarn = std::get_if<models::YarnRope>(&rope.scaling)) {
      if (yarn->magnitude || !yarn->truncate || yarn->beta_fast != 32 || yarn->beta_slow != 1) {
        fail("its variant of YaRN");
      }
      settings_.values.emplace_back(key("rope.scaling.type"), std::string("yarn"));
      number("rope.scaling.factor", yarn->factor);
      integer("rope.scaling.original_context_length",
              static_cast<std::uint64_t>(yarn->original_context));
    } else if (!std::holds_alternative<std::monostate>(rope.scaling)) {
      fail("its RoPE factors");
    }
  }

  /// GGUF does not state the scale of the scores, which readers know by the model's size.
  void check_scale(const models::AttentionDescriptor& attention) const {
    const double usual = 1 / std::sqrt(static_cast<double>(attention.head_dim));
    const double by_width =
        std::sqrt(static_cast<double>(attention.heads) / static_cast<double>(model_.width));
    const std::size_t layers = model_.layers.size();
    const bool is_27b = layout_.four_norms && (layers == 46 || layers == 62);
    if (std::abs(attention.scale - (is_27b ? by_width : usual)) > 1e-6) {
      fail("its query_pre_attn_scalar");
    }
  }

  std::string path_;
  const Layout& layout_;
  models::ConfigReader config_;
  Descriptor model_;
  GgufSettings settings_;
};

/// The model in config.json's terms.
class ConfigMaker {
 public:
  ConfigMaker(const Source& source, const Layout& layout)
      : metadata_(source.gguf->metadata()),
        layout_(layout),
        weights_(source.gguf),
        model_(models::describe_model(models::GgufReader(source.gguf, weights_))) {
    check_dense(model_, metadata_.path());
  }

  HuggingFaceSettings make() {
    const models::LayerDescriptor& layer = model_.layers.front();
    ordered_json config = {
        {"architectures", ordered_json::array({layout_.class_name})},
        {"model_type", layout_.model_type},
        {"vocab_size", model_.vocabulary},
        {"hidden_size", model_.width},
        {"intermediate_size", layer.mlp().hidden},
        {"num_hidden_layers", model_.layers.size()},
        {"num_attention_heads", layer.attention().heads},
        {"num_key_value_heads", layer.attention().kv_heads},
        {"head_dim", layer.attention().head_dim},
        {"max_position_embeddings", metadata_.require_integer(key("context_length"))},
        {"rms_norm_eps", shortest(model_.final_norm.eps)},
        {"tie_word_embeddings", model_.tied_head},
    };
    if (layout_.norm_plus_one) {
      add_gemma(config);
    } else {
      config["hidden_act"] = "silu";
    }
    if (layout_.model_type == "llama" || layout_.model_type == "qwen3") add_biases(config);
    if (layout_.model_type == "qwen2" || layout_.model_type == "qwen3") {
      config["use_sliding_window"] = false;
    }
    if (layout_.model_type == "llama") config["mlp_bias"] = layer.mlp().bias;
    if (layout_.model_type == "qwen2" && !layer.attention().qkv_bias)
      fail("a Qwen 2 without biases");
    config["rope_theta"] =
        shortest(metadata_.number(key("rope.freq_base")).value_or(default_theta()));
    if (const ordered_json scaling = rope_scaling(config["rope_theta"].get<double>());
        !scaling.is_null()) {
      config["rope_scaling"] = scaling;
    }
    return {std::move(config), {layer.attention().heads, layer.attention().kv_heads}};
  }

 private:
  std::string key(std::string_view name) const {
    return std::string(layout_.architecture) + "." + std::string(name);
  }
  double default_theta() const { return layout_.architecture == "gemma3" ? 1e6 : 10000; }
  [[noreturn]] void fail(const std::string& what) const {
    throw LoadError(metadata_.path() + ": config.json cannot state " + what);
  }

  void add_biases(ordered_json& config) const {
    const models::AttentionDescriptor& attention = model_.layers.front().attention();
    if (attention.qkv_bias != attention.output_bias) fail("biases in only part of the attention");
    config["attention_bias"] = attention.qkv_bias;
  }

  void add_gemma(ordered_json& config) const {
    const models::AttentionDescriptor& attention = model_.layers.front().attention();
    config["hidden_activation"] = "gelu_pytorch_tanh";
    // Gemma 3 knows only the newer key.
    if (layout_.model_type != "gemma3_text") config["hidden_act"] = "gelu_pytorch_tanh";
    config["attention_bias"] = false;
    if (!layout_.four_norms) return;
    config["query_pre_attn_scalar"] =
        std::llround(1 / (static_cast<double>(attention.scale) * attention.scale));
    const auto null_or = [](float value) {
      return value == 0 ? ordered_json(nullptr) : ordered_json(shortest(value));
    };
    config["final_logit_softcapping"] = null_or(model_.logit_softcap);
    config["attn_logit_softcapping"] = null_or(attention.softcap);
    int window = 0;
    ordered_json types = ordered_json::array();
    for (const auto& layer : model_.layers) {
      window = std::max(window, layer.attention().window);
      types.push_back(layer.attention().window > 0 ? "sliding_attention" : "full_attention");
    }
    config["sliding_window"] = window;
    config["layer_types"] = types;
    if (layout_.model_type != "gemma3_text") return;
    config["sliding_window_pattern"] =
        metadata_.integer(key("attention.sliding_window_pattern")).value_or(gemma_pattern);
    config["rope_local_base_freq"] =
        shortest(metadata_.number(key("rope.freq_base_swa")).value_or(gemma_local_theta));
  }

  ordered_json rope_scaling(double theta) const {
    const std::string type = metadata_.string(key("rope.scaling.type")).value_or("none");
    const double factor =
        shortest(metadata_.number(key("rope.scaling.factor"))
                     .value_or(metadata_.number(key("rope.scale_linear")).value_or(1)));
    if (const auto factors = rope_factors(); !factors.empty()) return llama3(theta, factors);
    if (type == "yarn") {
      return {{"rope_type", "yarn"},
              {"factor", factor},
              {"original_max_position_embeddings",
               metadata_.require_integer(key("rope.scaling.original_context_length"))}};
    }
    if (factor == 1 || factor == 0) return nullptr;
    return {{"rope_type", "linear"}, {"factor", factor}};
  }

  std::vector<float> rope_factors() const {
    if (!weights_.contains("rope_freqs.weight")) return {};
    const auto& rope = model_.layers.front().attention().rope;
    return weights_.vector("rope_freqs.weight", rope->dims / 2);
  }

  ordered_json llama3(double theta, const std::vector<float>& factors) const {
    const auto found = find_llama3(theta, factors);
    if (!found) fail("the factors in rope_freqs.weight");
    const models::Llama3Rope& rope = *found;
    return {{"rope_type", "llama3"},
            {"factor", rope.factor},
            {"low_freq_factor", rope.low_freq_factor},
            {"high_freq_factor", rope.high_freq_factor},
            {"original_max_position_embeddings", static_cast<int>(rope.original_context)}};
  }

  const arrays::GgufMetadata& metadata_;
  const Layout& layout_;
  mutable layers::WeightReader weights_;
  Descriptor model_;
};

}  // namespace

GgufSettings gguf_settings(const Source& source, const Layout& layout) {
  return GgufMaker(source, layout).make();
}

HuggingFaceSettings hugging_face_settings(const Source& source, const Layout& layout) {
  return ConfigMaker(source, layout).make();
}

}  // namespace espalier::conversion
