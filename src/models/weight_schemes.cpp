#include "models/weight_schemes.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace espalier::models {
namespace {

using quantization::MlxScheme;
using quantization::WeightSchemes;

/// Settings that say how the weights were found, or again what their tensors show. The tensors'
/// shapes and types decide on bits, groups and zero points.
constexpr std::array descriptive_keys = {
    "activation_scheme",
    "autoround_version",
    "batch_size",
    "block_name_to_quantize",
    "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_storage",
    "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant",
    "cache_block_outputs",
    "damp_percent",
    "dataset",
    "desc_act",
    "enable_quanted_input",
    "exllama_config",
    "fmt",
    "global_compression_ratio",
    "ignore",
    "ignored_layers",
    "is_marlin_format",
    "iters",
    "kv_cache_scheme",
    "llm_int8_enable_fp32_cpu_offload",
    "llm_int8_has_fp16_weight",
    "llm_int8_skip_modules",
    "llm_int8_threshold",
    "load_in_4bit",
    "load_in_8bit",
    "lm_head",
    "low_gpu_mem_usage",
    "lr",
    "max_input_length",
    "meta",
    "minmax_lr",
    "model_file_base_name",
    "model_name_or_path",
    "model_seqlen",
    "module_name_preceding_first_block",
    "modules_in_block_to_quantize",
    "modules_to_not_convert",
    "nsamples",
    "pad_token_id",
    "quantization_status",
    "scale_fmt",
    "seqlen",
    "sparsity_config",
    "static_groups",
    "sym",
    "tokenizer",
    "transform_config",
    "true_sequential",
    "use_cuda_fp16",
    "use_exllama",
    "version",
    "zero_point",
};

MlxScheme read_mlx(const ConfigReader& config, const MlxScheme& inherited) {
  return {.bits = config.integer("bits", inherited.bits),
          .group = config.integer("group_size", inherited.group),
          .mode = config.string("mode", inherited.mode)};
}

/// The defaults, then an object, or false, for each module that differs.
WeightSchemes read_mlx_schemes(const ConfigReader& config) {
  constexpr std::array own_keys = {"bits", "group_size", "mode", "quant_method"};
  WeightSchemes schemes{.method = WeightSchemes::Method::mlx};
  schemes.mlx = read_mlx(config, {.bits = 4, .group = 64, .mode = "affine"});
  for (const std::string& key : config.keys()) {
    if (std::ranges::find(own_keys, key) != own_keys.end()) {
      config.ignore(key);
    } else if (config.is_object(key)) {
      schemes.mlx_modules[key] = read_mlx(*config.object(key), *schemes.mlx);
    } else if (!config.boolean(key)) {
      schemes.mlx_modules[key] = std::nullopt;
    }
    // true: as the defaults say.
  }
  return schemes;
}

WeightSchemes read_gptq(const ConfigReader& config) {
  const std::string format = config.string("checkpoint_format", config.string("format", "gptq"));
  if (format != "gptq" && format != "gptq_v2") {
    config.fail("checkpoint_format", "is '" + format + "', which is not supported");
  }
  config.integer("bits", 0);
  config.ignore("group_size");
  return {.method = WeightSchemes::Method::gptq, .zero_point_offset = format == "gptq" ? 1 : 0};
}

WeightSchemes read_awq(const ConfigReader& config) {
  const std::string version = config.string("version", "gemm");
  if (version != "gemm" && version != "GEMM") {
    config.fail("version", "is '" + version + "', which is not supported");
  }
  if (config.integer("bits", config.integer("w_bit", 4)) != 4) {
    config.fail("bits", "is not 4, which AWQ needs");
  }
  config.ignore("group_size");
  config.ignore("q_group_size");
  return {.method = WeightSchemes::Method::awq};
}

WeightSchemes read_fp8(const ConfigReader& config) {
  WeightSchemes schemes{.method = WeightSchemes::Method::fp8};
  const std::vector<int> block = config.integers("weight_block_size");
  if (block.size() == 2 && block[0] > 0 && block[1] > 0) {
    schemes.scale_block = {block[0], block[1]};
  } else if (!block.empty()) {
    config.fail("weight_block_size", "is not a pair of whole numbers");
  }
  return schemes;
}

/// Everything but the size of blocks with one scale is in the tensors.
WeightSchemes read_compressed(const ConfigReader& config) {
  constexpr std::array formats = {"pack-quantized",  "int-quantized",   "float-quantized",
                                  "naive-quantized", "mixed-precision", "nvfp4-pack-quantized"};
  const std::string format = config.string("format", "pack-quantized");
  if (std::ranges::find(formats, format) == formats.end()) {
    config.fail("format", "is '" + format + "', which is not supported");
  }
  WeightSchemes schemes{.method = WeightSchemes::Method::compressed_tensors};
  const auto groups = config.object("config_groups");
  for (const std::string& key : groups ? groups->keys() : std::vector<std::string>()) {
    const ConfigReader group = *groups->object(key);
    if (const auto weights = group.object("weights")) {
      const std::vector<int> block = weights->integers("block_structure");
      if (block.size() == 2 && block[0] > 0 && block[1] > 0) {
        schemes.scale_block = {block[0], block[1]};
      }
    }
  }
  config.ignore_all("config_groups");
  return schemes;
}

WeightSchemes read_hugging_face(const ConfigReader& config) {
  const std::string method = config.string("quant_method", "");
  if (method == "gptq") {
    return read_gptq(config);
  }
  if (method == "awq") {
    return read_awq(config);
  }
  if (method == "fp8") {
    return read_fp8(config);
  }
  if (method == "compressed-tensors") {
    return read_compressed(config);
  }
  if (method == "bitsandbytes") {
    return {.method = WeightSchemes::Method::bitsandbytes};
  }
  if (method.empty() && config.contains("bits")) {
    return read_mlx_schemes(config);
  }
  config.fail("quant_method", "is '" + method + "', which is not supported");
}

}  // namespace

WeightSchemes read_weight_schemes(const ConfigReader& config) {
  if (const auto mlx = config.object("quantization")) {
    // Written twice by mlx-lm.
    config.ignore_all("quantization_config");
    return read_mlx_schemes(*mlx);
  }
  const auto settings = config.object("quantization_config");
  if (!settings) {
    return {};
  }
  WeightSchemes schemes = read_hugging_face(*settings);
  for (const char* key : descriptive_keys) {
    settings->ignore_all(key);
  }
  return schemes;
}

}  // namespace espalier::models
