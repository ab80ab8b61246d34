#include "models/config_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace espalier::models {
namespace {

/// Each layer is described in memory before any tensor shows whether it is there.
constexpr std::array<std::string_view, 3> layer_counts = {"num_hidden_layers", "n_layers",
                                                          "n_layer"};
constexpr int most_layers = 10'000;

using nlohmann::json;

/// Keys without influence on a causal decoder's logits: training, bookkeeping of the libraries that
/// wrote the file, token ids that the tokenizer and the generation settings state too, and how
/// transformers 4 generates where nobody says.
constexpr std::array inert_keys = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "activation_dropout",
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attention_softmax_in_fp32",
    "attn_implementation",
    "attn_pdrop",
    "auto_map",
    "aux_loss_alpha",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dropout",
    "early_stopping",
    "embd_pdrop",
    "embedding_dropout",
    "encoder_no_repeat_ngram_size",
    "eod_token_id",
    "ep_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "init_std",
    "initializer_range",
    "input_jitter_noise",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "layerdrop",
    "length_penalty",
    "max_length",
    "max_window_layers",
    "min_length",
    "mlp_dropout",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_mtp_layers",
    "num_nextn_predict_layers",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "reorder_and_upcast_attn",
    "repetition_penalty",
    "resid_pdrop",
    "residual_dropout",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "router_z_loss_coef",
    "scale_attention_softmax_in_fp32",
    "sep_token_id",
    "seq_aux",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

/// How transformers writes a number that JSON does not have.
const json infinity = {{"__float__", "Infinity"}};

/// Of a whole number, which may be negative.
bool within_sizes(const json& value) {
  return value.is_number_unsigned()
             ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(largest_size)
             : std::abs(value.get<double>()) <= largest_size;
}

/// Models compute with f32 numbers.
bool within_floats(double value) {
  return !std::isfinite(value) || std::abs(value) <= std::numeric_limits<float>::max();
}

template <typename T>
std::vector<T> list(const json& value) {
  return value.get<std::vector<T>>();
}

}  // namespace

ConfigReader::ConfigReader(std::string path, json object)
    : path_(std::move(path)),
      object_(std::move(object)),
      read_(std::make_shared<std::set<std::string, std::less<>>>()) {
  if (!object_.is_object()) {
    throw base::LoadError(path_ + ": expected a JSON object.");
  }
}

ConfigReader::ConfigReader(const ConfigReader& parent, std::string prefix, json object)
    : path_(parent.path_),
      prefix_(std::move(prefix)),
      object_(std::move(object)),
      read_(parent.read_) {}

void ConfigReader::set_defaults(const json& defaults) {
  for (const auto& [key, value] : defaults.items()) {
    object_.emplace(key, value);
  }
}

const json* ConfigReader::find(std::string_view key) const {
  read_->insert(prefix_ + std::string(key));
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigReader::fail(std::string_view key, const std::string& reason) const {
  throw base::LoadError(path_ + ": '" + prefix_ + std::string(key) + "' " + reason + ".");
}

void ConfigReader::replace(std::string_view key, const json& value) {
  object_[std::string(key)] = value;
}

bool ConfigReader::contains(std::string_view key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

std::vector<std::string> ConfigReader::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : object_.items()) {
    names.push_back(key);
  }
  return names;
}

bool ConfigReader::is_object(std::string_view key) const {
  return contains(key) && object_.find(key)->is_object();
}

bool ConfigReader::is_string(std::string_view key) const {
  return contains(key) && object_.find(key)->is_string();
}

int ConfigReader::integer(std::string_view key, std::optional<int> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) {
    return *fallback;
  }
  if (value == nullptr) {
    fail(key, "is missing");
  }
  if (!value->is_number_integer() || (!value->is_number_unsigned() && *value < 0)) {
    fail(key, "is " + value->dump() + ", expected a whole number");
  }
  if (!within_sizes(*value)) {
    fail(key, "is " + value->dump() + ", which is too large");
  }
  if (std::ranges::find(layer_counts, key) != layer_counts.end() && *value > most_layers) {
    fail(key, "is " + value->dump() + ", more layers than a model can have");
  }
  return value->get<int>();
}

int ConfigReader::signed_integer(std::string_view key, int fallback) const {
  const json* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_number_integer() || !within_sizes(*value)) {
    fail(key, "is " + value->dump() + ", expected a whole number");
  }
  return value->get<int>();
}

int ConfigReader::size(std::string_view key, double value) const {
  if (!(value >= 0 && value <= largest_size)) {
    std::ostringstream number;
    number << value;
    fail(key, "leads to a size of " + number.str() + ", which no model can have");
  }
  return static_cast<int>(value);
}

int ConfigReader::product(std::string_view key, int a, int b) const {
  return size(key, static_cast<double>(a) * b);
}

double ConfigReader::number(std::string_view key, std::optional<double> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) {
    return *fallback;
  }
  if (value == nullptr) {
    fail(key, "is missing");
  }
  if (!value->is_number()) {
    fail(key, "is " + value->dump() + ", expected a number");
  }
  const auto number = value->get<double>();
  if (!within_floats(number)) {
    fail(key, "is " + value->dump() + ", more than the f32 numbers that models compute with");
  }
  return number;
}

bool ConfigReader::boolean(std::string_view key, std::optional<bool> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) {
    return *fallback;
  }
  if (value == nullptr) {
    fail(key, "is missing");
  }
  if (!value->is_boolean()) {
    fail(key, "is " + value->dump() + ", expected true or false");
  }
  return value->get<bool>();
}

std::string ConfigReader::string(std::string_view key, std::optional<std::string> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) {
    return *fallback;
  }
  if (value == nullptr) {
    fail(key, "is missing");
  }
  if (!value->is_string()) {
    fail(key, "is " + value->dump() + ", expected a string");
  }
  return value->get<std::string>();
}

std::vector<int> ConfigReader::integers(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) {
    return {};
  }
  const json values = value->is_array() ? *value : json::array({*value});
  for (const json& element : values) {
    if (!element.is_number_integer() || !within_sizes(element)) {
      fail(key, "is " + value->dump() + ", expected a list of whole numbers");
    }
  }
  return list<int>(values);
}

std::vector<double> ConfigReader::numbers(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) {
    return {};
  }
  std::vector<double> numbers;
  for (const json& element : value->is_array() ? *value : json()) {
    if (element.is_number() && within_floats(element.get<double>())) {
      numbers.push_back(element.get<double>());
    } else if (element == infinity) {
      numbers.push_back(std::numeric_limits<double>::infinity());
    }
  }
  if (!value->is_array() || numbers.size() != value->size()) {
    fail(key, "is " + value->dump() + ", expected a list of numbers");
  }
  return numbers;
}

std::vector<std::string> ConfigReader::strings(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) {
    return {};
  }
  if (!value->is_array() || !std::ranges::all_of(*value, &json::is_string)) {
    fail(key, "is " + value->dump() + ", expected a list of strings");
  }
  return list<std::string>(*value);
}

std::optional<ConfigReader> ConfigReader::object(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_object()) {
    fail(key, "is " + value->dump() + ", expected an object");
  }
  return ConfigReader(*this, prefix_ + std::string(key) + ".", *value);
}

void ConfigReader::require_off(std::string_view key) const {
  const json* value = find(key);
  if (value != nullptr && *value != false && *value != 0) {
    fail(key, "is " + value->dump() + ", which is not supported");
  }
}

void ConfigReader::ignore(std::string_view key) const { find(key); }

void ConfigReader::ignore_all(std::string_view key) const {
  if (const json* value = find(key)) {
    mark_all(*value, prefix_ + std::string(key));
  }
}

void ConfigReader::mark_all(const json& value, const std::string& name) const {
  read_->insert(name);
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      mark_all(inner, name + "." + key);
    }
  }
}

void ConfigReader::collect_unread(const json& object, const std::string& prefix,
                                  std::vector<std::string>& unread) const {
  // A part with a type of its own was written as a whole configuration (DBRX's).
  const bool is_configuration = prefix.empty() || object.contains("model_type");
  for (const auto& [key, value] : object.items()) {
    const std::string full = prefix + key;
    const bool inert = is_configuration && std::ranges::find(inert_keys, key) != inert_keys.end();
    const bool empty = (value.is_object() || value.is_array()) && value.empty();
    if (inert || empty || value.is_null()) {
      continue;
    }
    if (!read_->contains(full)) {
      unread.push_back(full);
    } else if (value.is_object()) {
      collect_unread(value, full + ".", unread);
    }
  }
}

void ConfigReader::check_all_read() const {
  std::vector<std::string> unread;
  collect_unread(object_, prefix_, unread);
  if (unread.empty()) {
    return;
  }
  std::string names;
  for (const std::string& key : unread) {
    names += (names.empty() ? "'" : ", '") + key + "'";
  }
  throw base::LoadError(path_ + ": no meaning is known for " + names +
                        ", and ignoring it might change the results.");
}

}  // namespace espalier::models
