#include "models/load_model.h"

#include <fstream>
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
#include "models/expert_names.h"
#include "models/gguf_reader.h"
#include "models/inspect.h"
#include "models/json_file.h"
#include "models/model.h"
#include "models/original_layout.h"
#include "models/registry.h"
#include "models/sequence_model.h"
#include "models/tensor_prefix.h"
#include "models/weight_schemes.h"
#include "quantization/mxfp4_blocks.h"

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
  if (options.place == layers::WeightPlace::headers) {
    return nullptr;
  }
  const std::uint64_t memory = base::available_memory();
  const bool fits = memory == 0 || weights.bytes() < memory / 10 * 8;
  if (!options.map_experts.value_or(!fits)) {
    return nullptr;
  }
  return std::make_shared<layers::ExpertCache>(memory / 4);
}

std::unique_ptr<Model> build(Descriptor descriptor, layers::WeightReader& weights,
                             const arrays::TensorFile& file, mx::Dtype default_dtype,
                             const LoadOptions& options) {
  find_tensor_prefix(descriptor.names, weights);
  use_stacked_experts(descriptor, weights, file);
  if (options.check_weights) {
    weights.check_values();
  }
  DecoderModules modules =
      load_decoder(descriptor, weights, options.activations, expert_cache(weights, options));
  check_all_tensors_read(descriptor, weights);
  check_trellis_contract(options.trellis, weights);
  return std::make_unique<Decoder>(std::move(descriptor), std::move(modules),
                                   options.dtype.value_or(default_dtype));
}

/// What the settings of a checkpoint folder say.
struct FolderSettings {
  Descriptor descriptor;
  quantization::WeightSchemes schemes;
  mx::Dtype dtype;
  bool generates;
};

/// A folder in the layout of Hugging Face and MLX, or with the makers' own names and `params.json`.
FolderSettings read_folder(const std::filesystem::path& folder,
                           std::optional<int> wanted_context = {}) {
  const std::filesystem::path params = folder / "params.json";
  const bool original =
      !std::filesystem::exists(folder / "config.json") && std::filesystem::exists(params);
  const std::filesystem::path path = original ? params : folder / "config.json";
  ConfigReader config = original
                            ? ConfigReader(path.string(), config_of_params(params, read_json(path)))
                            : open_config(path);
  config.set_wanted_context(wanted_context);
  quantization::WeightSchemes schemes = read_weight_schemes(config);
  Descriptor descriptor = describe_model(config);
  if (original) {
    set_original_layout(descriptor);
  }
  const bool generates = !is_encoder(descriptor.family) && !read_classifier(config);
  return {std::move(descriptor), std::move(schemes), checkpoint_dtype(config), generates};
}

}  // namespace

namespace {

std::unique_ptr<Model> load_once(const std::filesystem::path& path, const LoadOptions& options,
                                 std::shared_ptr<const arrays::TensorFile> tensors) {
  if (std::filesystem::is_directory(path)) {
    FolderSettings settings = read_folder(path, options.context);
    if (!settings.generates) {
      throw base::LoadError(path.string() +
                            ": the model gives embeddings or scores; it generates no text.");
    }
    settings.schemes.trellis_contract = options.trellis;
    tensors = quantization::name_mxfp4_as_mlx(std::move(tensors));
    layers::WeightReader weights(tensors, std::move(settings.schemes), options.place);
    return build(std::move(settings.descriptor), weights, *tensors, settings.dtype, options);
  }
  const std::shared_ptr<const arrays::GgufFile> file = arrays::GgufFile::open(path);
  layers::WeightReader weights(tensors, {}, options.place);
  return build(describe_model(GgufReader(file, weights)), weights, *tensors, mx::float32, options);
}

}  // namespace

std::unique_ptr<Model> load_model(const std::filesystem::path& path, const LoadOptions& options,
                                  std::shared_ptr<const arrays::TensorFile> tensors) {
  try {
    return load_once(path, options, tensors);
  } catch (const base::LoadError&) {
    // The first fault ended it; the headers tell whether there are others.
    LoadOptions headers = options;
    headers.place = layers::WeightPlace::headers;
    load_once(path, headers, std::move(tensors));
    throw;
  }
}

std::size_t audit_checkpoint(const std::filesystem::path& path) {
  const LoadOptions headers{.dtype = {}, .place = layers::WeightPlace::headers};
  return is_sequence_model(path) ? load_sequence_model(path, headers)->weight_bytes()
                                 : load_model(path, headers)->weight_bytes();
}

std::unique_ptr<Model> load_model(const std::filesystem::path& path, const LoadOptions& options) {
  if (std::filesystem::is_directory(path)) {
    return load_model(path, options, arrays::open_safetensors_folder(path));
  }
  return load_model(path, options, arrays::GgufFile::open(path));
}

Inspection inspect_model(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    return {read_folder(path).descriptor, arrays::open_safetensors_folder(path)};
  }
  const std::shared_ptr<const arrays::GgufFile> file = arrays::GgufFile::open(path);
  layers::WeightReader weights(file);
  return {describe_model(GgufReader(file, weights)), file};
}

}  // namespace espalier::models
