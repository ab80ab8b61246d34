#include "conversion/plan.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include <fnmatch.h>

#include "arrays/gguf_header.h"
#include "arrays/tensor_index.h"
#include "base/error.h"
#include "conversion/trellis_plan.h"
#include "quantization/gguf_encoders.h"

namespace espalier::conversion {
namespace {

using arrays::StorageType;
using base::LoadError;
using base::UsageError;
using kernels::TrellisFormat;
using quantization::MlxFormat;
using quantization::MlxMode;

/// Parts of names of matrices that are no linear map or must not lose precision: norms, short
/// convolutions, tables of positions, rotations, and routers by the names that families give them.
constexpr auto never_quantized = std::to_array<std::string_view>({
    "norm",
    "model.rotation_",
    "conv1d",
    "conv_1d",
    "conv.conv",
    "position_embd",
    ".wpe.",
    "token_types",
    "token_type_embd",
    "position_embedding",
    "embed_positions",
    ".gate.",
    ".router.",
    ".wg.",
    ".altup.",
    "shared_expert_gate",
    "ffn_gate_inp",
    "token_type_embedding",
});

/// Beyond these a tensor is a convolution over images or sound.
constexpr std::size_t most_dimensions = 3;

int parse_number(std::string_view text, const std::string& setting) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError("\"" + setting + "\" is no setting for a tensor");
  }
  return number;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// "affine:4:64", "4:64", "4", "mxfp4".
MlxFormat parse_format(const std::string& setting) {
  auto parts = split(setting, ':');
  const bool named =
      !parts[0].empty() && std::isdigit(static_cast<unsigned char>(parts[0][0])) == 0;
  MlxFormat format;
  if (named) {
    format.mode = parse_mode(std::string(parts[0]));
    format = format.mode == MlxMode::affine ? format : quantization::mlx_float_format(format.mode);
    parts.erase(parts.begin());
  }
  if (parts.size() > 2) parse_number("", setting);
  if (!parts.empty()) format.bits = parse_number(parts[0], setting);
  if (parts.size() > 1) format.group = parse_number(parts[1], setting);
  if (!quantization::is_mlx_format(format)) {
    throw UsageError("\"" + setting + "\" is no format that MLX has");
  }
  return format;
}

/// The rules in force, and which of them took effect.
class Rules {
 public:
  explicit Rules(const std::vector<Rule>& rules) : rules_(rules), used_(rules.size()) {}

  /// The setting for a tensor; null when no rule matches. `able` says whether the tensor can take a
  /// rule's setting; rules that it cannot take do not match.
  template <typename Able>
  const std::string* find(const std::string& name, Able&& able) {
    const std::string layer = layer_name(name);
    const std::string* found = nullptr;
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      const char* pattern = rules_[i].pattern.c_str();
      const bool matches =
          ::fnmatch(pattern, name.c_str(), 0) == 0 || ::fnmatch(pattern, layer.c_str(), 0) == 0;
      if (!matches || !able(rules_[i].setting)) continue;
      used_[i] = true;
      found = &rules_[i].setting;
    }
    return found;
  }

  void check_all_used() const {
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      if (used_[i]) continue;
      throw UsageError("the rule " + rules_[i].pattern + "=" + rules_[i].setting +
                       " matches no tensor that could take it");
    }
  }

 private:
  const std::vector<Rule>& rules_;
  std::vector<bool> used_;
};

bool is_dtype(const std::string& setting) {
  return setting == "bfloat16" || setting == "float16" || setting == "float32";
}

bool is_mlx_or_dense(const Encoding& encoding) {
  return std::holds_alternative<MlxFormat>(encoding) || is_dense(encoding);
}

/// Plans one tensor after the other.
class FolderPlanner {
 public:
  FolderPlanner(const ConvertOptions& options, bool from_gguf)
      : options_(options), rules_(options.rules) {
    dtype_ = options.dtype;
    if (!dtype_ && from_gguf) dtype_ = StorageType::bf16;
  }

  PlannedTensor plan(SourceTensor tensor, std::vector<std::string>& notes) {
    const StorageType dtype = dtype_.value_or(tensor.natural_dtype());
    const bool quantizable = is_quantizable(tensor) && !tensor.transposed();
    const std::string* setting = rules_.find(tensor.name(), [&](const std::string& wanted) {
      return quantizable || wanted == "keep" || is_dtype(wanted);
    });
    if (options_.quantize && tensor.transposed() && is_quantizable(tensor)) {
      notes.push_back(tensor.name() + " stays " + dtype_name(dtype) + ": it is stored transposed");
    }
    Encoding target = dtype;
    const auto own = options_.layers.find(layer_name(tensor.name()));
    const auto coded =
        setting == nullptr && quantizable ? trellis_format(tensor, notes) : std::nullopt;
    if (const auto* type = std::get_if<StorageType>(&tensor.encoding());
        type != nullptr && is_integer(*type)) {
      target = *type;
    } else if (setting != nullptr) {
      target = parse_setting(*setting, tensor, dtype);
      check_columns(tensor, target);
    } else if (coded) {
      target = *coded;
    } else if (own != options_.layers.end()) {
      target = own->second;
    } else if (options_.quantize && quantizable) {
      if (fits(tensor, *options_.quantize)) {
        target = *options_.quantize;
      } else {
        notes.push_back(tensor.name() + " stays " + dtype_name(dtype) + ": its rows of " +
                        std::to_string(tensor.columns()) + " values are not whole groups of " +
                        std::to_string(options_.quantize->group));
      }
    } else if (!options_.quantize && !options_.dequantize &&
               std::holds_alternative<MlxFormat>(tensor.encoding())) {
      target = tensor.encoding();
    }
    return {std::move(tensor), target, dtype,
            options_.trellis ? options_.trellis->scale : quantization::TrellisScale::searched};
  }

  void check() const {
    rules_.check_all_used();
    if (!options_.trellis) return;
    for (const auto& [layer, format] : options_.trellis->layers) {
      if (coded_layers_.contains(layer)) continue;
      throw UsageError("there is no layer " + layer + " that could be trellis-coded");
    }
  }

 private:
  /// What `--trellis` makes of a matrix; nothing when it leaves it alone.
  std::optional<TrellisFormat> trellis_format(const SourceTensor& tensor,
                                              std::vector<std::string>& notes) {
    const std::string layer = layer_name(tensor.name());
    if (!options_.trellis || is_vocabulary_layer(layer)) return std::nullopt;
    TrellisFormat format = options_.trellis->format;
    const auto& layers = options_.trellis->layers;
    const auto named = layers.find(layer);
    if (named != layers.end()) {
      format = named->second;
      coded_layers_.insert(layer);
      return along_axis(tensor, format);
    }
    const auto axis = tensor.shape().size() == 2
                          ? trellis_axis(layer, tensor.rows(), tensor.columns())
                          : std::nullopt;
    if (!axis || !layers.empty()) {
      notes.push_back(tensor.name() + " is not trellis-coded: " +
                      (axis ? "the map does not name it"
                            : "neither dimension of " + arrays::to_string(tensor.shape()) +
                                  " is a multiple of 256"));
      return std::nullopt;
    }
    format.axis = *axis;
    return format;
  }

  /// The same for a matrix that was asked for by name.
  static TrellisFormat along_axis(const SourceTensor& tensor, TrellisFormat format) {
    const auto axis = tensor.shape().size() == 2
                          ? trellis_axis(layer_name(tensor.name()), tensor.rows(), tensor.columns())
                          : std::nullopt;
    if (!axis) {
      throw LoadError("tensor " + arrays::shown_name(tensor.name()) +
                      " cannot be trellis-coded: neither dimension of " +
                      arrays::to_string(tensor.shape()) + " is a multiple of 256");
    }
    format.axis = *axis;
    return format;
  }

  static bool fits(const SourceTensor& tensor, const MlxFormat& format) {
    return tensor.columns() % format.group == 0;
  }

  Encoding parse_setting(const std::string& setting, const SourceTensor& tensor,
                         StorageType dtype) const {
    constexpr std::string_view trellis = "trellis:";
    if (setting.starts_with(trellis)) {
      const TrellisFormat base = options_.trellis ? options_.trellis->format : TrellisFormat{};
      return along_axis(tensor, parse_trellis_bits(setting.substr(trellis.size()), base));
    }
    if (setting == "keep") {
      return is_mlx_or_dense(tensor.encoding()) ? tensor.encoding() : Encoding(dtype);
    }
    if (is_dtype(setting)) return parse_dtype(setting);
    return parse_format(setting);
  }

  static void check_columns(const SourceTensor& tensor, const Encoding& target) {
    const auto* format = std::get_if<MlxFormat>(&target);
    if (format == nullptr || fits(tensor, *format)) return;
    throw LoadError("tensor " + arrays::shown_name(tensor.name()) + " cannot become " +
                    to_string(target) + ": its rows have " + std::to_string(tensor.columns()) +
                    " values");
  }

  const ConvertOptions& options_;
  Rules rules_;
  std::optional<StorageType> dtype_;
  std::set<std::string> coded_layers_;  // that `--trellis` names
};

std::string upper(std::string text) {
  for (char& character : text) {
    character = static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
  }
  return text;
}

std::string gguf_name(StorageType type) {
  return upper(std::string(arrays::storage_traits(type).name));
}

/// A type of about as many bits whose blocks are smaller.
StorageType smaller_blocks(StorageType type) {
  switch (type) {
    case StorageType::q4_k:
      return StorageType::q5_0;
    case StorageType::q5_k:
      return StorageType::q5_1;
    case StorageType::q6_k:
      return StorageType::q8_0;
    case StorageType::iq4_xs:
      return StorageType::iq4_nl;
    default:
      return StorageType::f16;
  }
}

bool whole_blocks(const SourceTensor& tensor, StorageType type) {
  return tensor.columns() % arrays::storage_traits(type).elements == 0;
}

class GgufPlanner {
 public:
  GgufPlanner(const ConvertOptions& options, bool separate_head)
      : type_(*options.gguf), rules_(options.rules), separate_head_(separate_head) {}

  PlannedTensor plan(SourceTensor tensor, std::vector<std::string>& notes) {
    const auto* stored = std::get_if<StorageType>(&tensor.encoding());
    const bool quantizable = is_quantizable(tensor);
    const std::string* setting = rules_.find(tensor.name(), [&](const std::string& wanted) {
      return quantizable || wanted == "keep" || !is_block(wanted);
    });
    StorageType target = StorageType::f32;
    if (stored != nullptr && is_integer(*stored)) {
      target = *stored;
    } else if (setting != nullptr) {
      target = parse_setting(*setting, tensor);
      if (!whole_blocks(tensor, target)) {
        throw LoadError("tensor " + arrays::shown_name(tensor.name()) + " cannot become " +
                        gguf_name(target) + ": its rows have " + std::to_string(tensor.columns()) +
                        " values");
      }
    } else if (quantizable) {
      target = default_type(tensor, notes);
    }
    return {std::move(tensor), target, StorageType::f32};
  }

  void check() const { rules_.check_all_used(); }

 private:
  static bool is_block(const std::string& setting) {
    return arrays::storage_traits(parse_gguf_type(setting)).elements > 1;
  }

  static StorageType parse_setting(const std::string& setting, const SourceTensor& tensor) {
    if (setting != "keep") return parse_gguf_type(setting);
    const auto* stored = std::get_if<StorageType>(&tensor.encoding());
    const bool has_type = stored != nullptr && arrays::gguf_type_code(*stored).has_value();
    return has_type ? *stored : StorageType::f16;
  }

  StorageType default_type(const SourceTensor& tensor, std::vector<std::string>& notes) const {
    StorageType type = type_;
    const bool is_head = tensor.name() == (separate_head_ ? "output.weight" : "token_embd.weight");
    if (is_head && bits_per_weight(type) < bits_per_weight(StorageType::q6_k)) {
      type = StorageType::q6_k;
    }
    const StorageType wanted = type;
    while (!whole_blocks(tensor, type)) type = smaller_blocks(type);
    if (type != wanted) {
      notes.push_back(tensor.name() + " becomes " + gguf_name(type) + ": its rows of " +
                      std::to_string(tensor.columns()) + " values are not whole blocks of " +
                      gguf_name(wanted));
    }
    return type;
  }

  StorageType type_;
  Rules rules_;
  bool separate_head_;
};

template <typename Planner>
Plan plan_all(std::vector<SourceTensor> tensors, Planner planner) {
  Plan plan;
  plan.tensors.reserve(tensors.size());
  for (SourceTensor& tensor : tensors) {
    plan.tensors.push_back(planner.plan(std::move(tensor), plan.notes));
  }
  planner.check();
  return plan;
}

}  // namespace

std::string layer_name(const std::string& tensor) {
  const auto dot = tensor.rfind('.');
  return tensor.substr(0, dot);
}

bool is_quantizable(const SourceTensor& tensor) {
  const std::string& name = tensor.name();
  const std::size_t dimensions = tensor.shape().size();
  if (!name.ends_with(weight_suffix) || dimensions < 2 || dimensions > most_dimensions) {
    return false;
  }
  return std::ranges::none_of(
      never_quantized, [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

Plan plan_folder(std::vector<SourceTensor> tensors, const ConvertOptions& options, bool from_gguf) {
  return plan_all(std::move(tensors), FolderPlanner(options, from_gguf));
}

Plan plan_gguf(std::vector<SourceTensor> tensors, const ConvertOptions& options) {
  const bool separate_head = std::ranges::any_of(
      tensors, [](const SourceTensor& tensor) { return tensor.name() == "output.weight"; });
  return plan_all(std::move(tensors), GgufPlanner(options, separate_head));
}

StorageType parse_gguf_type(const std::string& name) {
  const std::string wanted = upper(name);
  std::string known;
  for (int i = 0; i <= static_cast<int>(StorageType::nvfp4); ++i) {
    const auto type = static_cast<StorageType>(i);
    if (!quantization::can_quantize(type)) continue;
    if (gguf_name(type) == wanted) return type;
    known += (known.empty() ? "" : ", ") + gguf_name(type);
  }
  throw UsageError("\"" + name + "\" is no GGUF type that can be written; these can: " + known);
}

}  // namespace espalier::conversion
