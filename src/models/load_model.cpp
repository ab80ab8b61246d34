#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "arrays/gguf.h"
#include "arrays/safetensors.h"
#include "base/available_memory.h"
#include "base/error.h"
#include "layers/weight_reader.h"
#include "models/audit.h"
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

/// Python writes a bare Infinity, which JSON does not have; transformers 5 writes an object
/// instead.
std::string spell_out_infinity(const std::string& text) {
  constexpr std::string_view bare = "Infinity";
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!quoted && text.compare(i, bare.size(), bare) == 0) {
      result += R"({"__float__": "Infinity"})";
      i += bare.size() - 1;
      continue;
    }
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      result += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    }
    result += text[i];
  }
  return result;
}

ConfigReader open_config(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw base::LoadError(path.string() + ": cannot be opened.");
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  try {
    return ConfigReader(path.string(), nlohmann::json::parse(spell_out_infinity(text)));
  } catch (const nlohmann::json::parse_error& error) {
    throw base::LoadError(path.string() + ": not valid JSON at byte " + std::to_string(error.byte) +
                          ".");
  }
}

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
