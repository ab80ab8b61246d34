#include "models/weight_schemes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "quantization/mlx_encoders.h"

namespace espalier::models {
namespace {

using quantization::MlxScheme;
using quantization::WeightSchemes;

/// Settings that say how the weights were found, or again what their tensors show. The tensors'
/// shapes and types decide on bits, groups and zero points.
constexpr std::array descriptive_keys = {
    "_load_in_4bit",
    "_load_in_8bit",
    "act_group_aware",
    "activation_scale_ub",
    "activation_scheme",
    "amp",
    "autoround_version",
    "backend",
    "batch_size",
    "block_name_to_quantize",
    "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_storage",
    "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant",
    "cache_block_outputs",
    "damp_percent",
    "data_type",
    "dataset",
    "dequantize",
    "desc_act",
    "do_fuse",
    "enable_minmax_tuning",
    "enable_norm_bias_tuning",
    "enable_quanted_input",
    "exclude_modules",
    "exllama_config",
    "fmt",
    "fuse_max_seq_len",
    "global_compression_ratio",
    "gradient_accumulate_steps",
    "ignore",
    "ignored_layers",
    "is_marlin_format",
    "iters",
    "kv_cache_quant_algo",
    "kv_cache_scheme",
    "llm_int8_enable_fp32_cpu_offload",
    "llm_int8_has_fp16_weight",
    "llm_int8_skip_modules",
    "llm_int8_threshold",
    "lm_head",
    "load_in_4bit",
    "load_in_8bit",
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
    "modules_to_fuse",
    "modules_to_not_convert",
    "nsamples",
    "offload_to_disk",
    "offload_to_disk_path",
    "pack_dtype",
    "pad_token_id",
    "producer",
    "quant_block_list",
    "quantization_status",
    "scale_dtype",
    "scale_fmt",
    "seqlen",
    "sparsity_config",
    "static_groups",
    "sym",
    "to_quant_block_names",
    "tokenizer",
    "train_bs",
    "true_sequential",
    "use_cuda_fp16",
    "use_exllama",
    "version",
    "zero_point",
};

constexpr std::string_view trellis_mode = "trellis";

/// Bits 3.5 are 4 in every other trellis block and 3 in the rest.
void read_trellis_bits(const ConfigReader& config, kernels::TrellisFormat& format) {
  const double bits = config.number("bits");
  const auto halves = static_cast<int>(2 * bits);
  if (2 * bits != halves || halves < 4 || halves > 8) {
    config.fail("bits", "is not 2, 2.5, 3, 3.5 or 4, which trellis codes can have");
  }
  format.bits = halves / 2;
  format.half_bit = halves % 2 != 0;
}

MlxScheme read_trellis(const ConfigReader& config) {
  kernels::TrellisFormat format;
  read_trellis_bits(config, format);
  if (config.integer("group_size", kernels::trellis_block_weights) !=
      kernels::trellis_block_weights) {
    config.fail("group_size", "is not 256, the length of trellis blocks");
  }
  const auto trellis = config.object(trellis_mode);
  if (!trellis) {
    config.fail(trellis_mode, "is missing, which the mode trellis needs");
  }
  format.state_bits = trellis->integer("L", format.state_bits);
  const std::string code = trellis->string("code", "1mad");
  if (code == "mul1") {
    format.code = kernels::TrellisCode::mul1;
  }
  const bool known = format.state_bits == 12   ? code == "1mad"
                     : format.state_bits == 16 ? code == "1mad" || code == "mul1"
                                               : false;
  if (!known) {
    trellis->fail(format.state_bits == 12 || format.state_bits == 16 ? "code" : "L",
                  "is not supported: trellis codes can be L 12 with 1mad, or L 16 with 1mad or "
                  "mul1");
  }
  // Whatever is not 0 counts as 1.
  format.axis = trellis->signed_integer("axis", 1) == 0 ? 0 : 1;
  return {.bits = format.bits,
          .group = kernels::trellis_block_weights,
          .mode = std::string(trellis_mode),
          .trellis = format};
}

/// What is not said is as mlx-lm has it: affine, with the bits and group that are usual for a mode.
MlxScheme read_mlx(const ConfigReader& config) {
  const std::string mode = config.string("mode", "affine");
  if (mode == trellis_mode) {
    return read_trellis(config);
  }
  const auto* known = std::ranges::find(quantization::mlx_modes, mode,
                                        [](const auto& entry) { return entry.first; });
  if (known == quantization::mlx_modes.end()) {
    config.fail("mode", "is '" + mode + "', which is not supported");
  }
  quantization::MlxFormat format;
  if (known->second != quantization::MlxMode::affine) {
    format = quantization::mlx_float_format(known->second);
  }
  format.bits = config.integer("bits", format.bits);
  format.group = config.integer("group_size", format.group);
  if (!quantization::is_mlx_format(format)) {
    config.fail("bits", "is " + std::to_string(format.bits) + " in groups of " +
                            std::to_string(format.group) + ", which MLX's mode " + mode +
                            " does not have");
  }
  return {.bits = format.bits, .group = format.group, .mode = mode};
}

/// The defaults, then an object, or false, for each module that differs.
WeightSchemes read_mlx_schemes(const ConfigReader& config) {
  constexpr std::array own_keys = {"bits", "group_size", "mode", "quant_method"};
  const bool by_default = config.string("mode", "affine") == trellis_mode;
  WeightSchemes schemes{.method = WeightSchemes::Method::mlx};
  schemes.mlx = read_mlx(config);
  for (const std::string& key : config.keys()) {
    if (std::ranges::find(own_keys, key) != own_keys.end()) {
      config.ignore(key);
    } else if (by_default && key == trellis_mode) {
      continue;
    } else if (config.is_object(key)) {
      schemes.mlx_modules[key] = read_mlx(*config.object(key));
    } else if (!config.boolean(key)) {
      schemes.mlx_modules[key] = std::nullopt;
    }
    // true: as the defaults say.
  }
  return schemes;
}

/// Bits and group of the integers of other schemes, which tensors must agree with; nothing where
/// the bits are not said. Groups that are not positive are whole rows, or not said.
std::optional<MlxScheme> stated_widths(const ConfigReader& config, const char* bits,
                                       const char* group) {
  const int stated_group = config.signed_integer(group, 0);
  if (!config.contains(bits)) {
    return std::nullopt;
  }
  return MlxScheme{.bits = config.integer(bits), .group = stated_group, .mode = "integers"};
}

/// Whether some modules are said to differ from the rest. Their tensors say how.
bool names_exceptions(const ConfigReader& config, const char* key) {
  const auto exceptions = config.object(key);
  config.ignore_all(key);
  return exceptions && !exceptions->keys().empty();
}

WeightSchemes read_gptq(const ConfigReader& config) {
  const std::string format = config.string("checkpoint_format", config.string("format", "gptq"));
  if (format != "gptq" && format != "gptq_v2") {
    config.fail("checkpoint_format", "is '" + format + "', which is not supported");
  }
  auto widths = stated_widths(config, "bits", "group_size");
  if (names_exceptions(config, "dynamic")) widths.reset();
  return {.method = WeightSchemes::Method::gptq,
          .mlx = widths,
          .zero_point_offset = format == "gptq" ? 1 : 0};
}

WeightSchemes read_awq(const ConfigReader& config) {
  const std::string version = config.string("version", "gemm");
  if (version != "gemm" && version != "GEMM") {
    config.fail("version", "is '" + version + "', which is not supported");
  }
  // Older tools' names.
  const bool older = config.contains("w_bit");
  const auto widths = older ? stated_widths(config, "w_bit", "q_group_size")
                            : stated_widths(config, "bits", "group_size");
  if (widths && widths->bits != 4) {
    config.fail(older ? "w_bit" : "bits", "is not 4, which AWQ needs");
  }
  return {.method = WeightSchemes::Method::awq, .mlx = widths};
}

/// AutoRound packs as GPTQ or AWQ does.
WeightSchemes read_auto_round(const ConfigReader& config) {
  // Older files name the packing as the program that reads it.
  const char* key = config.contains("packing_format") ? "packing_format" : "backend";
  const std::string packing = config.string(key, "auto_round:auto_gptq");
  const bool awq = packing == "auto_round:auto_awq";
  if (!awq && packing != "auto_round:auto_gptq") {
    config.fail(key, "is '" + packing + "', which is not supported");
  }
  WeightSchemes schemes = awq ? read_awq(config) : read_gptq(config);
  if (names_exceptions(config, "extra_config")) schemes.mlx.reset();
  return schemes;
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

/// Throws `LoadError` for rotations that the model would have to undo while it runs.
void check_transforms(const ConfigReader& config) {
  constexpr const char* key = "transform_config";
  if (const auto transforms = config.object(key)) {
    const auto groups = transforms->object("config_groups");
    if (groups && !groups->keys().empty()) {
      config.fail(key, "turns activations, which is not supported");
    }
  }
  config.ignore_all(key);
}

/// Everything but the size of blocks with one scale is in the tensors.
WeightSchemes read_compressed(const ConfigReader& config) {
  constexpr std::array formats = {"pack-quantized",  "int-quantized",   "float-quantized",
                                  "naive-quantized", "mixed-precision", "nvfp4-pack-quantized"};
  const std::string format = config.string("format", "pack-quantized");
  if (std::ranges::find(formats, format) == formats.end()) {
    config.fail("format", "is '" + format + "', which is not supported");
  }
  check_transforms(config);
  WeightSchemes schemes{.method = WeightSchemes::Method::compressed_tensors};
  const auto groups = config.object("config_groups");
  const std::vector<std::string> keys = groups ? groups->keys() : std::vector<std::string>();
  for (const std::string& key : keys) {
    const ConfigReader group = *groups->object(key);
    if (const auto weights = group.object("weights")) {
      // Which layers are of which of several groups is not read.
      if (keys.size() == 1) schemes.mlx = stated_widths(*weights, "num_bits", "group_size");
      const std::vector<int> block = weights->integers("block_structure");
      if (block.size() == 2 && block[0] > 0 && block[1] > 0) {
        schemes.scale_block = {block[0], block[1]};
      }
    }
  }
  config.ignore_all("config_groups");
  return schemes;
}

/// NVIDIA's tools; the tensors say everything but the algorithm.
WeightSchemes read_modelopt(const ConfigReader& config) {
  constexpr std::array algorithms = {"NVFP4", "FP8"};
  const std::string algorithm = config.string("quant_algo");
  if (std::ranges::find(algorithms, algorithm) == algorithms.end()) {
    config.fail("quant_algo", "is '" + algorithm + "', which is not supported");
  }
  config.ignore_all("config_groups");
  config.ignore("group_size");
  return {};
}

WeightSchemes read_hugging_face(const ConfigReader& config) {
  const std::string method = config.string("quant_method", "");
  if (method == "gptq") {
    return read_gptq(config);
  }
  if (method == "awq") {
    return read_awq(config);
  }
  if (method == "auto-round" || method == "intel/auto-round") {
    return read_auto_round(config);
  }
  if (method == "fp8" || method == "fbgemm_fp8") {
    return read_fp8(config);
  }
  if (method == "compressed-tensors") {
    return read_compressed(config);
  }
  if (method == "modelopt" || method == "modelopt_fp4") {
    return read_modelopt(config);
  }
  if (method == "mxfp4") {
    return {};  // gpt-oss; its tensors say everything
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

void check_trellis_contract(layers::TrellisContract contract, const layers::WeightReader& weights) {
  if (contract != layers::TrellisContract::integer && !weights.read_trellis()) {
    throw base::LoadError(weights.path() +
                          ": the reference's numeric contract is one of trellis-coded weights, of "
                          "which the model has none.");
  }
}

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
