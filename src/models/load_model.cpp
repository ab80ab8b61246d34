#include <string>
#include <utility>

#include "arrays/gguf.h"
#include "arrays/safetensors.h"
#include "base/available_memory.h"
#include "base/error.h"
#include "layers/weight_reader.h"
#include "models/audit.h"
#include "models/checkpoint.h"
#include "models/classifier.h"
#include "models/config_reader.h"
#include "models/decoder.h"
#include "models/gguf_reader.h"
#include "models/inspect.h"
#include "models/model.h"
#include "models/registry.h"
#include "models/tensor_prefix.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;

mx::Dtype checkpoint_dtype(const ConfigReader& config) {
  const std::string name = config.string("dtype", config.string("torch_dtype", "float32"));
  if (name == "bfloat16") {
    return mx::bfloat16;
  }
  if (name == "float16") {
    return mx::float16;
  }
  if (name == "float32") {
    return mx::float32;
  }
  config.fail("dtype", "is '" + name + "', which is not supported");
}

/// Where chosen experts are kept when not all of them are: a quarter of the memory, which leaves
/// the rest to the pages of the file, keys and values.
std::shared_ptr<layers::ExpertCache> expert_cache(const layers::WeightReader& weights,
                                                  const LoadOptions& options) {
  const std::uint64_t memory = base::available_memory();
  const bool fits = memory == 0 || weights.bytes() < memory / 10 * 8;
  if (!options.map_experts.value_or(!fits)) {
    return nullptr;
  }
  return std::make_shared<layers::ExpertCache>(memory / 4);
}

std::unique_ptr<Model> build(Descriptor descriptor, layers::WeightReader& weights,
                             mx::Dtype default_dtype, const LoadOptions& options) {
  drop_absent_prefix(descriptor.names, weights);
  DecoderModules modules =
      load_decoder(descriptor, weights, options.activations, expert_cache(weights, options));
  check_all_tensors_read(descriptor, weights);
  return std::make_unique<Decoder>(std::move(descriptor), std::move(modules),
                                   options.dtype.value_or(default_dtype));
}

}  // namespace

std::unique_ptr<Model> load_model(const std::filesystem::path& path, const LoadOptions& options) {
  if (std::filesystem::is_directory(path)) {
    ConfigReader config = open_config(path / "config.json");
    Descriptor descriptor = describe_model(config);
    if (is_encoder(descriptor.family) || read_classifier(config)) {
      throw base::LoadError(path.string() +
                            ": the model gives embeddings or scores; it generates no text.");
    }
    layers::WeightReader weights(arrays::open_safetensors_folder(path));
    return build(std::move(descriptor), weights, checkpoint_dtype(config), options);
  }
  const std::shared_ptr<const arrays::GgufFile> file = arrays::GgufFile::open(path);
  layers::WeightReader weights(file);
  return build(describe_model(GgufReader(file, weights)), weights, mx::float32, options);
}

Inspection inspect_model(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    ConfigReader config = open_config(path / "config.json");
    Descriptor descriptor = describe_model(config);
    return {std::move(descriptor), arrays::open_safetensors_folder(path)};
  }
  const std::shared_ptr<const arrays::GgufFile> file = arrays::GgufFile::open(path);
  layers::WeightReader weights(file);
  return {describe_model(GgufReader(file, weights)), file};
}

}  // namespace espalier::models
