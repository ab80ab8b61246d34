#include "evaluation/summary.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include <nlohmann/json.hpp>

#include "arrays/gguf.h"
#include "arrays/safetensors.h"
#include "arrays/tensor_index.h"
#include "base/error.h"
#include "tokenizer/json_file.h"

namespace espalier::evaluation {
namespace {

using arrays::StorageType;
using arrays::TensorView;

std::int64_t elements(const TensorView& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= size;
  return count;
}

/// Adds up what the tensors of MLX's formats stand for: codes, scales and biases are one weight.
class Summer {
 public:
  Summer(const arrays::TensorFile& file, ModelSummary& summary) : file_(file), summary_(summary) {}

  void add(const TensorView& tensor) {
    summary_.weight_bytes += tensor.bytes.size();
    const std::string layer = tensor.name.substr(0, tensor.name.rfind('.'));
    const TensorView* codes = file_.find(layer + ".weight");
    const TensorView* scales = file_.find(layer + ".scales");
    const bool quantized = codes != nullptr && scales != nullptr && codes->type == StorageType::u32;
    if (quantized && tensor.name != codes->name) {
      // Counted with the codes.
      if (tensor.name == scales->name || tensor.name == layer + ".biases") {
        type(quantized_type(*scales)) += tensor.bytes.size();
        return;
      }
    }
    if (quantized && tensor.name == codes->name) {
      type(quantized_type(*scales)) += tensor.bytes.size();
      summary_.parameters += quantized_elements(*codes, layer);
      return;
    }
    type(std::string(arrays::storage_traits(tensor.type).name)) += tensor.bytes.size();
    summary_.parameters += elements(tensor);
  }

  void read_settings(const nlohmann::json& config) {
    for (const char* key : {"quantization", "quantization_config"}) {
      const auto found = config.find(key);
      if (found != config.end() && found->is_object()) settings_ = *found;
    }
  }

 private:
  std::uint64_t& type(const std::string& name) { return summary_.bytes_by_type[name]; }

  static std::string quantized_type(const TensorView& scales) {
    return scales.type == StorageType::u8 ? "mlx float" : "mlx affine";
  }

  /// Code words hold 32 / bits weights each.
  std::int64_t quantized_elements(const TensorView& codes, const std::string& layer) const {
    constexpr std::int64_t word_bits = 32;
    constexpr std::int64_t usual_bits = 4;
    const auto own = settings_.find(layer);
    const auto& settings = own != settings_.end() && own->is_object() ? *own : settings_;
    const auto bits = settings.find("bits");
    const bool known = bits != settings.end() && bits->is_number_integer() && *bits > 0;
    return elements(codes) * word_bits / (known ? bits->get<std::int64_t>() : usual_bits);
  }

  const arrays::TensorFile& file_;
  ModelSummary& summary_;
  nlohmann::json settings_ = nlohmann::json::object();
};

}  // namespace

ModelSummary summarize(const std::filesystem::path& path) {
  ModelSummary summary;
  std::shared_ptr<const arrays::TensorFile> file;
  nlohmann::json config = nlohmann::json::object();
  if (std::filesystem::is_directory(path)) {
    summary.container = "safetensors";
    config = tokenizer::read_json_object(path / "config.json");
    const auto type = config.find("model_type");
    if (type != config.end() && type->is_string()) summary.family = type->get<std::string>();
    file = arrays::open_safetensors_folder(path);
  } else {
    const auto gguf = arrays::GgufFile::open(path);
    summary.container = "gguf";
    summary.family = gguf->metadata().string("general.architecture").value_or("");
    file = gguf;
  }
  Summer summer(*file, summary);
  summer.read_settings(config);
  for (const TensorView& tensor : file->tensors()) summer.add(tensor);
  summary.bits_per_weight = summary.parameters == 0
                                ? 0
                                : 8.0 * static_cast<double>(summary.weight_bytes) /
                                      static_cast<double>(summary.parameters);
  return summary;
}

}  // namespace espalier::evaluation
