#include "kernels/trellis_metal.h"

#include <string>
#include <vector>

#include <trellis_metal_source.h>

#include "base/error.h"
#include "kernels/trellis_device.h"

namespace espalier::kernels {

namespace mx = mlx::core;

namespace {

constexpr int lanes = 32;
constexpr int threads = 256;

void require_metal() {
  if (!has_metal()) {
    throw base::UsageError("This needs a Metal device, and MLX has none here.");
  }
}

struct MetalLaunch {
  std::string name;
  std::string call;  // of a device function, with the names of inputs and outputs
  std::vector<std::string> input_names;
  std::vector<std::string> output_names;
  int threads;  // in all
};

std::vector<mx::array> launch_metal(
    const MetalLaunch& launch, const std::vector<mx::array>& inputs,
    const std::vector<mx::Shape>& shapes, const std::vector<mx::Dtype>& dtypes,
    std::vector<std::pair<std::string, mx::fast::TemplateArg>> arguments) {
  const auto kernel = mx::fast::metal_kernel(launch.name, launch.input_names, launch.output_names,
                                             "  " + launch.call + ";\n", trellis_metal_source);
  return kernel(inputs, shapes, dtypes, {launch.threads, 1, 1}, {threads, 1, 1},
                std::move(arguments), std::nullopt, /*verbose=*/false, mx::Device::gpu);
}

constexpr const char* group_position =
    "thread_position_in_grid.x / threads_per_simdgroup, thread_index_in_simdgroup, "
    "threads_per_simdgroup";

}  // namespace

bool has_metal() { return mx::metal::is_available(); }

mx::array trellis_linear_metal(const mx::array& x, const TrellisMatrix& weight,
                               TrellisActivations activations) {
  require_metal();
  require_trellis_rows("trellis_linear_metal", x, weight);
  const int rows = x.shape(0);
  const int blocks = (weight.columns + trellis_activation_block - 1) / trellis_activation_block;
  const std::string axis = std::to_string(weight.format.axis);
  const std::string limit = activations == TrellisActivations::int8 ? "127" : "32512";
  const auto prepared =
      launch_metal({.name = "trellis_prepare_" + axis + "_" + limit,
                    .call = "espalier::prepare<" + axis + ", " + limit +
                            ">(x, input_scales, x_shape[0], x_shape[1], integers, scales, " +
                            group_position + ")",
                    .input_names = {"x", "input_scales"},
                    .output_names = {"integers", "scales"},
                    .threads = rows * blocks * lanes},
                   {x, weight.scales}, {{rows, blocks * trellis_activation_block}, {rows, blocks}},
                   {mx::int32, mx::float32}, {{"T", x.dtype()}});
  const std::vector<mx::array> inputs = {prepared[0], prepared[1], trellis_words(weight),
                                         weight.scales, x};
  const std::vector<std::string> names = {"integers", "scales", "codes", "weight_scales", "x"};
  const mx::Shape shape = {rows, weight.rows};
  if (weight.format.axis == 1) {
    return launch_metal(
        {.name = "trellis_multiply_" + trellis_name(weight.format),
         .call = "espalier::multiply_along_inputs<" + trellis_arguments(weight.format) +
                 ">(integers, scales, codes, weight_scales, x_shape[0], x_shape[1], "
                 "codes_shape[0], out, " +
                 group_position + ")",
         .input_names = names,
         .output_names = {"out"},
         .threads = rows * weight.rows * lanes},
        inputs, {shape}, {mx::float32}, {})[0];
  }
  return launch_metal(
      {.name = "trellis_multiply_" + trellis_name(weight.format),
       .call = "espalier::multiply_along_outputs<" + trellis_arguments(weight.format) +
               ">(integers, scales, codes, x_shape[0], x_shape[1], "
               "256 * codes_shape[0], out, thread_position_in_grid.x)",
       .input_names = names,
       .output_names = {"out"},
       .threads = rows * weight.rows},
      inputs, {shape}, {mx::float32}, {})[0];
}

mx::array expand_trellis_metal(const TrellisMatrix& weight, mx::Dtype dtype) {
  require_metal();
  const bool along_inputs = weight.format.axis == 1;
  const mx::array stored =
      launch_metal({.name = "trellis_expand_" + trellis_name(weight.format),
                    .call = "espalier::expand<" + trellis_arguments(weight.format) + ", " +
                            (along_inputs ? "false" : "true") +
                            ">(codes, scales, scales_shape[0], codes_shape[" +
                            (along_inputs ? "1" : "0") + "], out, thread_position_in_grid.x)",
                    .input_names = {"codes", "scales"},
                    .output_names = {"out"},
                    .threads = weight.rows * weight.columns},
                   {trellis_words(weight), weight.scales}, {{weight.rows * weight.columns}},
                   {dtype}, {{"T", dtype}})[0];
  return trellis_matrix_of(stored, weight);
}

}  // namespace espalier::kernels
