#include "kernels/trellis_cuda.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include <trellis_cuda_source.h>

#include "base/error.h"
#include "kernels/cuda_compiler.h"
#include "kernels/trellis_device.h"

namespace espalier::kernels {

namespace mx = mlx::core;

namespace {

/// Multiprocessors of an H100 or H200; others take work in more or fewer turns.
constexpr int processors = 132;
/// What a thread block may have on capability 9.0, 8.0 and others from 8.6 on, less some that the
/// compiler takes.
constexpr int shared_bytes_90 = 232448 - 1024;
constexpr int shared_bytes_80 = 166912 - 1024;
constexpr int shared_bytes_86 = 101376 - 1024;
/// Threads of a block for few rows; half where shared memory does not hold what they fetch ahead.
constexpr int few_rows_threads = 512;
constexpr int least_shared_bytes = 160000;
constexpr int prepare_threads = 256;
constexpr int prepare_tasks = prepare_threads / 32;  // a warp each
constexpr int expand_threads = 256;
/// From so many rows on decoding once for a tile of rows is faster than once for 8 columns.
constexpr int least_tiled_rows = 33;
constexpr int tile_outputs = 128;
/// What the reference's contract may take for expanded weights.
constexpr std::int64_t most_expanded_bytes = std::int64_t{256} << 20;
/// Up to so many rows the reference's contract decodes in the product if its tiles fill the
/// multiprocessors, where weights are coded along inputs (else half as many): on an H200 14336 x
/// 4096 with 256 and 512 rows took 59 and 118 us so and 86 and 128 us with expanded weights.
constexpr int most_decoded_rows = 512;
constexpr int tile_threads = 384;

void require_cuda() {
  if (!has_cuda()) {
    throw base::UsageError("This needs a CUDA device, and MLX has none here.");
  }
}

int capability(const char* part) {
  const auto& info = mx::gpu::device_info(0);
  const auto found = info.find(std::string("compute_capability_") + part);
  const auto* value = found == info.end() ? nullptr : std::get_if<std::size_t>(&found->second);
  return value == nullptr ? 0 : static_cast<int>(*value);
}

int shared_bytes() {
  const int major = capability("major");
  if (major == 8) {
    return capability("minor") == 0 ? shared_bytes_80 : shared_bytes_86;
  }
  return major == 9 || major == 10 ? shared_bytes_90 : shared_bytes_86;
}

bool has_warpgroup_products() {
  return capability("major") == 9 && capability("minor") == 0 && has_cuda_compiler();
}

struct Launch {
  std::string name;
  std::string call;  // of a device function, with the names of inputs and outputs
  std::vector<std::string> input_names;
  std::vector<std::string> output_names;
  int blocks_x;
  int blocks_y = 1;
  int threads;
  int shared_bytes = 0;
};

/// MLX keeps compiled kernels by name, also on disk: a name stands for one text.
std::string versioned(const std::string& name) {
  return name + "_" + std::to_string(std::hash<std::string>{}(trellis_cuda_source));
}

/// A kernel whose body is one call. MLX writes its signature; a macro of its name adds what the
/// compiler has to know of the threads, so that it does not take too many registers for them.
std::vector<mx::array> launch(const Launch& launch, const std::vector<mx::array>& inputs,
                              const std::vector<mx::Shape>& shapes,
                              const std::vector<mx::Dtype>& dtypes,
                              std::optional<float> initial = std::nullopt) {
  const std::string own_name = versioned(launch.name);
  const std::string name = "custom_kernel_" + own_name;
  const std::string header = std::string(trellis_cuda_source) + "\n#define " + name +
                             " __launch_bounds__(" + std::to_string(launch.threads) + ", 1) " +
                             name + "\n";
  const std::string body = "\n#undef " + name + "\n" + launch.call + ";\n";
  const auto kernel =
      mx::fast::cuda_kernel(own_name, launch.input_names, launch.output_names, body, header,
                            /*ensure_row_contiguous=*/true, launch.shared_bytes);
  return kernel(inputs, shapes, dtypes, {launch.blocks_x * launch.threads, launch.blocks_y, 1},
                {launch.threads, 1, 1}, {}, initial, /*verbose=*/false, mx::Device::gpu);
}

int ceiling(int a, int b) { return (a + b - 1) / b; }

std::string format_text(const TrellisFormat& format) {
  return "espalier::Trellis<" + trellis_arguments(format) + ">";
}

std::string name_of(mx::Dtype dtype) {
  return dtype == mx::float32 ? "f32" : dtype == mx::float16 ? "f16" : "bf16";
}

std::string type_of(mx::Dtype dtype) {
  return dtype == mx::float32 ? "float" : dtype == mx::float16 ? "__half" : "__nv_bfloat16";
}

/// Sizes of one product. Kernels read them from the shapes of their inputs.
struct Product {
  const TrellisMatrix& weight;
  int rows;
  int planes;  // of activations

  int blocks() const { return ceiling(weight.columns, trellis_activation_block); }
  std::string axis() const { return std::to_string(weight.format.axis); }
};

/// What a product of few rows shares among thread blocks, and the memory of one with `count` of it.
struct Sharing {
  int units;
  std::function<std::int64_t(int count)> bytes;
};

int few_threads() {
  return shared_bytes() >= least_shared_bytes ? few_rows_threads : few_rows_threads / 2;
}

/// Thread blocks, a multiple of the multiprocessors where each has more than one unit.
int thread_blocks(const Sharing& sharing, int inputs) {
  for (int blocks = processors;; blocks += processors) {
    const int count = ceiling(sharing.units, blocks);
    if (sharing.bytes(count) <= shared_bytes()) {
      return std::min(blocks, sharing.units);
    }
    if (count == 1) {
      throw base::UsageError("A weight with " + std::to_string(inputs) +
                             " inputs is too wide for this CUDA device's shared memory.");
    }
  }
}

/// Bytes that a thread block has for codes on their way: `stages` of 16 lines of `line_words` for
/// each warp (CodeRing).
std::int64_t ring_bytes(int stages, int line_words) {
  return std::int64_t{few_threads() / 32} * stages * 16 * line_words * 4;
}

Sharing row_along_inputs(const Product& product) {
  const int blocks = product.blocks();
  const int quads = ceiling(blocks, 4);
  const auto rings = ring_bytes(3, trellis_block_words(product.weight.format.bits));
  const int row = quads * (1024 * product.planes + 32);
  return {ceiling(product.weight.rows, 4),
          [=](int count) { return rings + row + std::int64_t{16} * count * blocks; }};
}

Sharing columns_along_inputs(const Product& product, int group_rows) {
  const int blocks = product.blocks();
  const auto rings = ring_bytes(3, trellis_block_words(product.weight.format.bits));
  return {ceiling(product.weight.rows, 8), [=](int count) {
            return rings + std::int64_t{64} * ceiling(count, 2) * blocks * group_rows;
          }};
}

/// `columns` 0: the one row of `multiply_row_along_outputs`.
Sharing along_outputs(const Product& product, int columns) {
  constexpr int column_bytes = 4 * 289;  // of the sums of a unit (column_stride)
  const int line_words = product.weight.format.bits == 4 ? 40 : 24;
  const auto rings = ring_bytes(columns == 0 ? 3 : 2, line_words);
  const int unit_bytes = columns == 0 ? product.planes * (column_bytes + 256) + 8
                                      : ceiling(columns, 2) * 2 * column_bytes + 8 * columns;
  return {product.weight.rows / trellis_block_weights * product.blocks(),
          [=](int count) { return rings + std::int64_t{count} * unit_bytes; }};
}

/// The sum over activation blocks of products along outputs [blocks, rows, outputs].
mx::array add_products(const mx::array& partial, const Product& product) {
  return launch({.name = "trellis_add_products",
                 .call = "espalier::add_products(partial, partial_shape[0], "
                         "static_cast<long long>(partial_shape[1]) * partial_shape[2], out)",
                 .input_names = {"partial"},
                 .output_names = {"out"},
                 .blocks_x = ceiling(product.rows * product.weight.rows, expand_threads),
                 .threads = expand_threads},
                {partial}, {{product.rows, product.weight.rows}}, {mx::float32})[0];
}

/// One row, whose integers the product makes itself.
mx::array one_row(const mx::array& x, const Product& product) {
  const TrellisMatrix& weight = product.weight;
  const bool along_inputs = weight.format.axis == 1;
  const std::string planes = std::to_string(product.planes);
  const Sharing sharing = along_inputs ? row_along_inputs(product) : along_outputs(product, 0);
  const mx::Shape shape =
      along_inputs ? mx::Shape{1, weight.rows} : mx::Shape{product.blocks(), 1, weight.rows};
  const mx::array result =
      launch({.name = "trellis_row_" + trellis_name(weight.format) + "_" + planes + "_" +
                      name_of(x.dtype()),
              .call = along_inputs ? "espalier::multiply_row_along_inputs<" +
                                         format_text(weight.format) + ", " + planes +
                                         ">(x, codes, weight_scales, x_shape[1], codes_shape[0], "
                                         "out)"
                                   : "espalier::multiply_row_along_outputs<" +
                                         format_text(weight.format) + ", " + planes +
                                         ">(x, weight_scales, codes, x_shape[1], "
                                         "256 * codes_shape[0], out)",
              .input_names = {"x", "codes", "weight_scales"},
              .output_names = {"out"},
              .blocks_x = thread_blocks(sharing, weight.columns),
              .threads = few_threads(),
              .shared_bytes = shared_bytes()},
             {x, trellis_words(weight), weight.scales}, {shape}, {mx::float32})[0];
  return along_inputs ? result : add_products(result, product);
}

mx::array few_rows(const mx::array& x, const Product& product) {
  const TrellisMatrix& weight = product.weight;
  const bool along_inputs = weight.format.axis == 1;
  const int planes = product.planes;
  if (product.rows == 1) {
    return one_row(x, product);
  }
  const int blocks = product.blocks();
  const int most_columns = along_inputs && product.rows * planes > 8 ? 16 : 8;
  const int group_rows = std::min(product.rows, most_columns / planes);
  const int groups = ceiling(product.rows, group_rows);
  const int columns = group_rows * planes;
  const std::string planes_text = std::to_string(planes);

  std::vector<mx::array> inputs = launch(
      {.name = "trellis_prepare_" + product.axis() + "_" + planes_text + "_" + name_of(x.dtype()),
       .call = "espalier::prepare<" + product.axis() + ", " + planes_text +
               ">(x, input_scales, x_shape[0], x_shape[1], group_shape[0], "
               "reinterpret_cast<signed char*>(bytes), sums, scales)",
       .input_names = {"x", "input_scales", "group"},
       .output_names = {"bytes", "sums", "scales"},
       .blocks_x = ceiling(product.rows * blocks, prepare_tasks),
       .threads = prepare_threads},
      {x, weight.scales, mx::zeros({group_rows}, mx::int32, mx::Device::gpu)},
      {{groups, blocks, columns * trellis_activation_block},
       {groups, blocks, columns},
       {groups, blocks, group_rows}},
      {mx::int8, mx::int32, mx::float32});
  inputs.push_back(trellis_words(weight));
  inputs.push_back(weight.scales);
  inputs.push_back(x);

  const std::string tiles_text = columns > 8 ? "2" : "1";
  const std::string activations =
      "{reinterpret_cast<const signed char*>(bytes), sums, scales}, codes";
  Launch multiply{.name = "trellis_columns_" + trellis_name(weight.format) + "_" + planes_text +
                          "_" + tiles_text + "_" + name_of(x.dtype()),
                  .call = {},
                  .input_names = {"bytes", "sums", "scales", "codes", "weight_scales", "x"},
                  .output_names = {"out"},
                  .blocks_x = 0,
                  .blocks_y = groups,
                  .threads = few_threads(),
                  .shared_bytes = shared_bytes()};
  if (along_inputs) {
    multiply.call =
        "espalier::multiply_columns_along_inputs<" + format_text(weight.format) + ", " +
        planes_text + ", " + tiles_text + ">(" + activations +
        ", weight_scales, x_shape[0], scales_shape[2], x_shape[1], codes_shape[0], out)";
    multiply.blocks_x = thread_blocks(columns_along_inputs(product, group_rows), weight.columns);
    return launch(multiply, inputs, {{product.rows, weight.rows}}, {mx::float32})[0];
  }
  multiply.call = "espalier::multiply_columns_along_outputs<" + format_text(weight.format) + ", " +
                  planes_text + ">(" + activations +
                  ", x_shape[0], scales_shape[2], x_shape[1], 256 * codes_shape[0], out)";
  multiply.blocks_x = thread_blocks(along_outputs(product, columns), weight.columns);
  return add_products(
      launch(multiply, inputs, {{blocks, product.rows, weight.rows}}, {mx::float32})[0], product);
}

/// A tile of columns: how many, and what it costs beside them, in columns.
int columns_of_tile(const Product& product, std::initializer_list<int> choices) {
  constexpr int fixed_cost = 40;
  const int output_tiles = ceiling(product.weight.rows, tile_outputs);
  int best = 0;
  long best_cost = 0;
  for (const int columns : choices) {
    const int tiles = output_tiles * ceiling(product.rows * product.planes, columns);
    const long cost = static_cast<long>(ceiling(tiles, processors)) * (columns + fixed_cost);
    if (best == 0 || cost < best_cost) {
      best = columns;
      best_cost = cost;
    }
  }
  return best;
}

/// Whether the reference's contract is faster when weights are decoded in the product.
bool decodes_reference(const Product& product) {
  constexpr int columns = 256;
  const int tiles = ceiling(product.weight.rows, tile_outputs) * ceiling(product.rows, columns);
  const int places = ceiling(tiles, processors) * processors;
  const bool along_inputs = product.weight.format.axis == 1;
  return product.rows <= (along_inputs ? most_decoded_rows : most_decoded_rows / 2) &&
         5 * tiles >= 4 * places;
}

mx::array many_rows(const mx::array& x, const Product& product, const std::string& numeric,
                    int columns) {
  const TrellisMatrix& weight = product.weight;
  const bool reference = numeric == "reference";
  const mx::Dtype dtype = reference ? mx::bfloat16 : mx::float16;
  const mx::Dtype output = reference ? mx::bfloat16 : mx::float32;
  const int tile_rows = columns / product.planes;
  const int tiles = ceiling(product.rows, tile_rows);
  const int blocks = product.blocks();
  const std::string shared_name =
      product.axis() + "_" + numeric + "_" + std::to_string(columns) + "_" + name_of(x.dtype());
  const std::string arguments =
      product.axis() + ", espalier::Numeric::" + numeric + ", " + std::to_string(columns) + ">(";
  const auto prepared =
      launch({.name = "trellis_tiles_" + shared_name,
              .call = "espalier::prepare_tiles<" + arguments +
                      "x, input_scales, x_shape[0], x_shape[1], reinterpret_cast<" +
                      type_of(dtype) + "*>(tiles), scales)",
              .input_names = {"x", "input_scales"},
              .output_names = {"tiles", "scales"},
              .blocks_x = ceiling(tiles * tile_rows * blocks, prepare_tasks),
              .threads = prepare_threads},
             {x, weight.scales},
             {{tiles, blocks, columns * trellis_activation_block}, {tiles, blocks, tile_rows}},
             {dtype, mx::float32});
  // Not through `launch`: MLX's own compilation knows no warpgroup instructions.
  const std::string name = versioned("trellis_tile_" + trellis_name(weight.format) + "_" + numeric +
                                     "_" + std::to_string(columns));
  const std::string result = reference ? "unsigned short" : "float";
  const std::string source =
      std::string(trellis_cuda_source) + "\nextern \"C\" __global__ void __launch_bounds__(" +
      std::to_string(tile_threads) + ", 1) " + name +
      "(const unsigned short* tiles, const float* scales, const unsigned* codes, const float* "
      "weight_scales, " +
      result + "* out, int rows, int inputs, int outputs) {\n  espalier::multiply_tile<" +
      format_text(weight.format) + ", " + arguments +
      "tiles, scales, codes, weight_scales, rows, inputs, outputs, out);\n}\n";
  return mx::fast::precompiled_cuda_kernel(
      name, compile_cuda(name, source, "sm_90a"),
      {prepared[0], prepared[1], trellis_words(weight), weight.scales},
      {{product.rows, weight.rows}}, {output}, {product.rows, weight.columns, weight.rows},
      {tiles * tile_threads, ceiling(weight.rows, tile_outputs), 1}, {tile_threads, 1, 1},
      shared_bytes(), std::nullopt, /*ensure_row_contiguous=*/true, mx::Device::gpu)[0];
}

/// The stored matrix S from `codes` in one of the orders of `expand`, at `offset` of `elements`.
mx::array expand(const mx::array& codes, const mx::array& scales, const TrellisFormat& format,
                 const std::string& order, mx::Dtype dtype, std::int64_t offset, int elements) {
  const int rows = scales.shape(0);
  const auto blocks = static_cast<int>(codes.size()) / rows / trellis_block_words(format.bits);
  const int count = format.bits == 4 ? 8 : 16;
  const bool covers = std::int64_t{rows} * blocks * trellis_block_weights == elements;
  return launch(
      {.name = "trellis_expand_" + trellis_name(format) + "_" + order + "_" + name_of(dtype),
       .call = "espalier::expand<" + format_text(format) + ", espalier::Order::" + order +
               ">(codes, scales, scales_shape[0], static_cast<int>(place[1]), reinterpret_cast<" +
               type_of(dtype) + "*>(out), place[0])",
       .input_names = {"codes", "scales", "place"},
       .output_names = {"out"},
       .blocks_x = ceiling(rows * blocks * (trellis_block_weights / count), expand_threads),
       .threads = expand_threads},
      {codes, scales, mx::array({offset, std::int64_t{blocks}}, mx::int64)}, {{elements}}, {dtype},
      covers ? std::nullopt : std::optional<float>(0.0F))[0];
}

}  // namespace

bool has_cuda() { return mx::cu::is_available(); }

mx::array trellis_linear_cuda(const mx::array& x, const TrellisMatrix& weight,
                              TrellisActivations activations) {
  require_cuda();
  require_trellis_rows("trellis_linear_cuda", x, weight);
  const bool int8 = activations == TrellisActivations::int8;
  const Product product{.weight = weight, .rows = x.shape(0), .planes = int8 ? 1 : 2};
  if (product.rows == 0) {
    return mx::zeros({0, weight.rows}, mx::float32);
  }
  if (product.rows < least_tiled_rows || !has_warpgroup_products()) {
    return few_rows(x, product);
  }
  return int8 ? many_rows(x, product, "int8", columns_of_tile(product, {128, 176}))
              : many_rows(x, product, "int15", columns_of_tile(product, {176, 256}));
}

mx::array trellis_linear_reference_cuda(const mx::array& x, const TrellisMatrix& weight) {
  require_cuda();
  require_trellis_rows("trellis_linear_reference_cuda", x, weight);
  const mx::array rounded = mx::astype(x, mx::bfloat16, mx::Device::gpu);
  const Product product{.weight = weight, .rows = x.shape(0), .planes = 1};
  const std::int64_t expanded_bytes = std::int64_t{2} * weight.rows * weight.columns;
  if (product.rows > 0 && has_warpgroup_products() &&
      (expanded_bytes > most_expanded_bytes || decodes_reference(product))) {
    return many_rows(rounded, product, "reference", columns_of_tile(product, {176, 256}));
  }
  return mx::matmul(rounded,
                    mx::transpose(expand_trellis_cuda(weight, mx::bfloat16), mx::Device::gpu),
                    mx::Device::gpu);
}

mx::array expand_trellis_cuda(const TrellisMatrix& weight, mx::Dtype dtype) {
  require_cuda();
  const bool along_inputs = weight.format.axis == 1;
  const mx::array stored =
      expand(trellis_words(weight), weight.scales, weight.format, along_inputs ? "rows" : "groups",
             dtype, 0, weight.rows * weight.columns);
  return trellis_matrix_of(stored, weight);
}

mx::array fill_trellis_cuda(const mx::array& codes, const mx::array& scales,
                            const TrellisFormat& format, std::int64_t offset, int elements) {
  require_cuda();
  const int words = trellis_block_words(format.bits);
  const bool pairs = codes.ndim() == 3;
  const bool fits = pairs ? format.bits == 3 && codes.shape(2) == 2 * words
                          : codes.ndim() == 2 && codes.shape(1) % words == 0;
  if (!fits || codes.dtype() != mx::uint32 || scales.ndim() != 1 || scales.dtype() != mx::float32 ||
      scales.shape(0) != codes.shape(pairs ? 1 : 0)) {
    throw std::invalid_argument(
        "[fill_trellis_cuda] expected uint32 codes of whole trellis blocks and f32 scales [rows]");
  }
  const std::int64_t weights = static_cast<std::int64_t>(codes.size()) / words * 256;
  if (offset < 0 || offset % 8 != 0 || offset + weights > elements) {
    throw std::invalid_argument(
        "[fill_trellis_cuda] expected an offset that is a multiple of 8 and room for all weights");
  }
  return expand(codes, scales, format, pairs ? "pairs" : "rows", mx::float16, offset, elements);
}

}  // namespace espalier::kernels
