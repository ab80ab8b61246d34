#include "conversion/fold.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "arrays/tensor_index.h"
#include "base/error.h"
#include "conversion/rotation.h"

namespace espalier::conversion {
namespace {

using base::LoadError;

/// Families with RMS norms before each part and none behind it.
constexpr auto exact_families =
    std::to_array<std::string_view>({"llama", "mistral", "qwen2", "qwen3"});

constexpr std::string_view embedding = "model.embed_tokens.weight";
constexpr std::string_view head = "lm_head.weight";
constexpr std::string_view final_norm = "model.norm.weight";
constexpr std::string_view rotation_in = "model.rotation_in.weight";
constexpr std::string_view rotation_out = "model.rotation_out.weight";

/// What becomes of a tensor, by the end of its name, and the norm before a map that reads the
/// stream.
struct Part {
  enum class Role { reads, writes, norm, stays };
  std::string_view end;
  Role role;
  std::string_view norm = {};
};

constexpr std::string_view attention_norm = "input_layernorm.weight";
constexpr std::string_view mlp_norm = "post_attention_layernorm.weight";

constexpr std::array parts = {
    Part{"self_attn.q_proj.weight", Part::Role::reads, attention_norm},
    Part{"self_attn.k_proj.weight", Part::Role::reads, attention_norm},
    Part{"self_attn.v_proj.weight", Part::Role::reads, attention_norm},
    Part{"mlp.gate_proj.weight", Part::Role::reads, mlp_norm},
    Part{"mlp.up_proj.weight", Part::Role::reads, mlp_norm},
    Part{"self_attn.o_proj.weight", Part::Role::writes},
    Part{"self_attn.o_proj.bias", Part::Role::writes},
    Part{"mlp.down_proj.weight", Part::Role::writes},
    Part{"mlp.down_proj.bias", Part::Role::writes},
    Part{attention_norm, Part::Role::norm},
    Part{mlp_norm, Part::Role::norm},
    Part{"self_attn.q_proj.bias", Part::Role::stays},
    Part{"self_attn.k_proj.bias", Part::Role::stays},
    Part{"self_attn.v_proj.bias", Part::Role::stays},
    Part{"self_attn.q_norm.weight", Part::Role::stays},
    Part{"self_attn.k_norm.weight", Part::Role::stays},
    Part{"mlp.gate_proj.bias", Part::Role::stays},
    Part{"mlp.up_proj.bias", Part::Role::stays},
    Part{"rotary_emb.inv_freq", Part::Role::stays},
};

class Folder {
 public:
  Folder(const std::vector<SourceTensor>& tensors, int width, std::uint32_t seed, bool tied,
         std::string path)
      : tensors_(tensors),
        rotation_(std::make_shared<Rotation>(width, seed)),
        tied_(tied),
        path_(std::move(path)) {}

  SourceTensor fold(SourceTensor tensor) const {
    const std::string name = tensor.name();
    if (name == embedding && tied_) {
      // Stays: the rotation has matrices of its own.
    } else if (name == embedding) {
      tensor.fold({.input_scale = nullptr, .inputs = rotation_, .outputs = nullptr});
    } else if (name == head) {
      tensor.fold(
          {.input_scale = norm(std::string(final_norm)), .inputs = rotation_, .outputs = nullptr});
    } else if (name == final_norm) {
      tensor = ones(tensor);
    } else {
      fold_layer(tensor);
    }
    return tensor;
  }

  /// The rotation as a map of the embedding's rows, and what undoes it: the transpose, its outputs
  /// times the final norm's weights.
  std::vector<SourceTensor> own_matrices() const {
    const auto width = static_cast<std::size_t>(rotation_->width());
    std::vector<float> rotated(width * width);
    for (std::size_t i = 0; i < width; ++i) rotated[i * (width + 1)] = 1.0F;
    rotation_->apply(rotated);  // row i is what the rotation makes of unit vector i
    const auto scale = norm(std::string(final_norm));
    std::vector<float> in(rotated.size());
    std::vector<float> out(rotated.size());
    for (std::size_t i = 0; i < width; ++i) {
      for (std::size_t k = 0; k < width; ++k) {
        in[k * width + i] = rotated[i * width + k];
        out[i * width + k] = rotated[i * width + k] * (*scale)[i];
      }
    }
    const std::vector<std::int64_t> shape(2, rotation_->width());
    const arrays::StorageType dtype = find(std::string(final_norm))->natural_dtype();
    return {{std::string(rotation_in), std::move(in), shape, dtype},
            {std::string(rotation_out), std::move(out), shape, dtype}};
  }

 private:
  void fold_layer(SourceTensor& tensor) const {
    const std::string name = tensor.name();
    const auto* part =
        std::ranges::find_if(parts, [&](const Part& p) { return name.ends_with(p.end); });
    if (part == parts.end()) {
      throw LoadError(path_ + ": it is not known how to rotate tensor " + arrays::shown_name(name));
    }
    switch (part->role) {
      case Part::Role::reads: {
        const std::string layer = name.substr(0, name.size() - part->end.size());
        tensor.fold({.input_scale = norm(layer + std::string(part->norm)),
                     .inputs = rotation_,
                     .outputs = nullptr});
        break;
      }
      case Part::Role::writes:
        tensor.fold({.input_scale = nullptr, .inputs = nullptr, .outputs = rotation_});
        break;
      case Part::Role::norm:
        tensor = ones(tensor);
        break;
      case Part::Role::stays:
        break;
    }
  }

  /// The norm of this name.
  std::vector<SourceTensor>::const_iterator find(const std::string& name) const {
    const auto found = std::ranges::find(tensors_, name, &SourceTensor::name);
    if (found == tensors_.end() || found->elements() != rotation_->width()) {
      throw LoadError(path_ + ": tensor " + arrays::shown_name(name) +
                      " is missing or has another size than the residual stream");
    }
    return found;
  }

  std::shared_ptr<const std::vector<float>> norm(const std::string& name) const {
    const auto found = find(name);
    auto values = std::make_shared<std::vector<float>>(found->elements());
    found->read(0, found->rows(), *values);
    return values;
  }

  static SourceTensor ones(const SourceTensor& tensor) {
    return {tensor.name(), std::vector<float>(static_cast<std::size_t>(tensor.elements()), 1.0F),
            tensor.shape(), tensor.natural_dtype()};
  }

  const std::vector<SourceTensor>& tensors_;
  std::shared_ptr<const Rotation> rotation_;
  bool tied_;
  std::string path_;
};

}  // namespace

void fold_rotation(nlohmann::ordered_json& config, std::vector<SourceTensor>& tensors,
                   std::uint32_t seed, const std::string& path) {
  const std::string family = config.value("model_type", "");
  const int width = config.value("hidden_size", 0);
  if (std::ranges::find(exact_families, family) == exact_families.end() || width < 2) {
    throw LoadError(path + ": a rotation cannot be folded into models of type " + family +
                    "; it is exact for llama, mistral, qwen2 and qwen3");
  }
  const std::vector<SourceTensor> original = tensors;
  const bool tied = config.value("tie_word_embeddings", false);
  const Folder folder(original, width, seed, tied, path);
  for (SourceTensor& tensor : tensors) {
    tensor = folder.fold(std::move(tensor));
  }
  if (tied) {
    std::ranges::move(folder.own_matrices(), std::back_inserter(tensors));
    config["rotated_embedding"] = true;
  }
}

}  // namespace espalier::conversion
