#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/element_type.h"
#include "kernels/linear_product.h"
#include "kernels/packed_matrix.h"
#include "kernels/trellis_cpu.h"
#include "kernels/trellis_device.h"

namespace espalier::kernels {

namespace mx = mlx::core;

namespace {

/// The weights that a product in floats sees, all in f32.
enum class ExpandedWeight {
  exact,      // value * scale
  rounded,    // the same rounded to the activations' type
  unrefined,  // byte sum * reciprocal * scale
};

/// Rows of a call up to which the reference contract takes unrefined weights.
constexpr int unrefined_rows = 4;

float round_to(ElementType type, float value) {
  switch (type) {
    case ElementType::f16:
      return static_cast<float>(mx::float16_t(value));
    case ElementType::bf16:
      return static_cast<float>(mx::bfloat16_t(value));
    default:
      return value;
  }
}

/// The number of each state, before its scale.
std::vector<float> value_table(const TrellisFormat& format, ExpandedWeight kind) {
  std::vector<float> table = trellis_values(format);
  if (kind == ExpandedWeight::unrefined) {
    const TrellisHash hash = trellis_hash(format.code);
    for (std::size_t state = 0; state < table.size(); ++state) {
      const int sum = trellis_byte_sum(hash, static_cast<std::uint32_t>(state));
      table[state] = static_cast<float>(sum) * trellis_reciprocal;
    }
  }
  return table;
}

/// A trellis-coded matrix times activations in floats: f32 sums [T, N] of one band after another,
/// each expanded and then multiplied like a matrix of f32.
struct ExpandedWork {
  ProductSetting setting;
  TrellisMatrix matrix;
  ExpandedWeight kind;
  bool round_activations;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const ProductArrays arrays(setting, inputs, 1, outputs[0]);
    const TrellisOperand operand(matrix);
    const std::vector<float> table = value_table(matrix.format, kind);
    const int rows = arrays.rows();
    const int columns = arrays.columns();
    std::vector<float> x(static_cast<std::size_t>(rows) * columns);
    const int bands = (matrix.rows + band_rows - 1) / band_rows;
    base::TileCounter row_counter(rows);
    base::TileCounter band_counter(bands);
    base::compute_pool().run([&](int) {
      for (std::size_t row; row_counter.next(row);) {
        float* values = x.data() + row * columns;
        linear_cpu().convert_row(arrays.row(static_cast<int>(row)), values);
        for (int i = 0; i < columns && round_activations; ++i) {
          values[i] = round_to(arrays.input_type(), values[i]);
        }
      }
      base::compute_pool().barrier();
      std::vector<float> band(static_cast<std::size_t>(columns) * band_rows);
      std::vector<float> sums(static_cast<std::size_t>(rows) * band_rows);
      for (std::size_t next; band_counter.next(next);) {
        const int first = static_cast<int>(next) * band_rows;
        expand(operand, table, arrays.input_type(), first, band.data());
        const BandMatrix shape({BandType::f32, {}}, band_rows, columns);
        linear_cpu()
            .format(BandType::f32)
            .multiply_f32(shape.shape(), reinterpret_cast<const std::uint8_t*>(band.data()),
                          x.data(), rows, sums.data());
        OutputTile tile = arrays.tile(0, rows, first, std::min(band_rows, matrix.rows - first));
        tile.sums = sums.data();
        linear_cpu().finish(tile);
      }
    });
  }

 private:
  /// Outputs first .. first + 16 as a band of f32, zeros past the last.
  void expand(const TrellisOperand& operand, const std::vector<float>& table, ElementType type,
              int first, float* band) const {
    const int lanes = std::min(band_rows, matrix.rows - first);
    const auto* scales = matrix.scales.data<float>();
    const auto weight = [&](const std::uint32_t* words, int block, int position, float scale) {
      const auto state =
          trellis_state(words, matrix.format.block_bits(block), matrix.format.state_bits, position);
      const float value = table[state] * scale;
      return kind == ExpandedWeight::rounded ? round_to(type, value) : value;
    };
    if (matrix.format.axis == 0) {
      const int block = first / trellis_block_weights;
      for (int input = 0; input < matrix.columns; ++input) {
        const std::uint32_t* words = operand.input_block(input, block);
        for (int lane = 0; lane < band_rows; ++lane) {
          *band++ = weight(words, block, first % trellis_block_weights + lane, scales[input]);
        }
      }
      return;
    }
    for (int lane = 0; lane < band_rows; ++lane) {
      const int output = std::min(first + lane, matrix.rows - 1);
      const float scale = lane < lanes ? scales[output] : 0.0F;
      for (int block = 0; block < operand.blocks(); ++block) {
        const std::uint32_t* words = operand.output_block(output, block);
        for (int i = 0; i < trellis_block_weights; ++i) {
          band[(block * trellis_block_weights + i) * band_rows + lane] =
              weight(words, block, i, scale);
        }
      }
    }
  }
};

float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu_tanh: {
      const float factor = std::sqrt(2.0F * std::numbers::inv_pi_v<float>);
      return 0.5F * x * (1 + std::tanh(factor * (x + 0.044715F * x * x * x)));
    }
    case Activation::gelu_erf:
      return 0.5F * x * (1 + std::erf(x / std::numbers::sqrt2_v<float>));
    case Activation::relu:
      return std::max(x, 0.0F);
    default:
      return x;
  }
}

/// Columns first .. first + lanes of a product as [T, 16].
std::vector<float> lanes_of(const mx::array& product, int first, int lanes) {
  const int rows = product.shape(0);
  std::vector<float> values(static_cast<std::size_t>(rows) * band_rows);
  for (int row = 0; row < rows; ++row) {
    std::copy_n(product.data<float>() + static_cast<std::size_t>(row) * product.shape(1) + first,
                lanes, values.data() + static_cast<std::size_t>(row) * band_rows);
  }
  return values;
}

/// Adds biases and applies the gate with a rounding after each step; what is left to `finish` is
/// a residual.
void round_steps(const ProductArrays& arrays, OutputTile& tile, std::vector<float>& sums,
                 const std::vector<float>& up) {
  const ElementType type = arrays.input_type();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const int lane = static_cast<int>(i % band_rows);
    const bool biased = tile.bias != nullptr && lane < tile.lanes;
    float value = round_to(type, sums[i]);
    value = biased ? round_to(type, value + tile.bias[lane]) : value;
    if (tile.up != nullptr) {
      float factor = round_to(type, up[i]);
      factor = biased ? round_to(type, factor + tile.up_bias[lane]) : factor;
      const float activated = tile.activation == Activation::silu
                                  ? value * round_to(type, 1 / (1 + std::exp(-value)))
                                  : activate(tile.activation, value);
      value = round_to(type, round_to(type, activated) * factor);
    }
    sums[i] = value;
  }
  tile.bias = nullptr;
  tile.up_bias = nullptr;
  tile.up = nullptr;
}

/// What follows products [T, N], one for each matrix and all there. `reference` rounds every step
/// to the activations' type.
void finish_products(const std::vector<mx::array>& products, const ProductSetting& setting,
                     const ProductArrays& arrays, bool reference) {
  int column = 0;
  for (std::size_t i = 0; i < (setting.gated ? 1 : products.size()); ++i) {
    const int outputs = products[i].shape(1);
    for (int first = 0; first < outputs; first += band_rows) {
      const int lanes = std::min(band_rows, outputs - first);
      OutputTile tile = arrays.tile(0, arrays.rows(), column + first, lanes);
      std::vector<float> sums = lanes_of(products[i], first, lanes);
      std::vector<float> up;
      tile.sums = sums.data();
      if (setting.gated) {
        up = lanes_of(products[1], first, lanes);
        tile.up = up.data();
      }
      if (reference) {
        round_steps(arrays, tile, sums, up);
      }
      linear_cpu().finish(tile);
    }
    column += outputs;
  }
}

/// Several products of the same activations, each computed for itself, and what follows them.
struct JoinedWork {
  static constexpr const char* name = "espalier::joined_linear";

  ProductSetting setting;
  std::vector<PackedMatrix> weights;
  std::optional<ActivationFormat> activations;
  bool reference;  // rounds every step to the activations' type

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    std::vector<mx::array> products;
    for (const PackedMatrix& weight : weights) {
      products.push_back(product(inputs, weight));
    }
    finish_products(products, setting, ProductArrays(setting, inputs, 1, outputs[0]), reference);
  }

 private:
  mx::array product(const std::vector<mx::array>& inputs, const PackedMatrix& weight) const {
    ProductSetting alone{.activation = Activation::none,
                         .gated = false,
                         .has_norm = setting.has_norm,
                         .norm_eps = setting.norm_eps,
                         .has_bias = false,
                         .has_residual = false};
    const mx::Shape shape{inputs[0].shape(0), weight.rows};
    if (!weight.trellis || (!reference && activations != ActivationFormat::f32)) {
      LinearOptions options{.activations = activations};
      if (setting.has_norm) {
        options.norm = RmsNorm{.weight = inputs[1], .eps = setting.norm_eps};
      }
      return linear_now(inputs[0], {weight}, options, /* f32_output = */ true);
    }
    const bool few = shape[0] <= unrefined_rows;
    const ExpandedWork work{.setting = alone,
                            .matrix = *weight.trellis,
                            .kind = !reference ? ExpandedWeight::exact
                                    : few      ? ExpandedWeight::unrefined
                                               : ExpandedWeight::rounded,
                            .round_activations = reference};
    return run_now(work, shape, mx::float32, inputs);
  }
};

/// Rows of activations [T, K] in f32, normalized. Inputs: x and the norm's weight.
struct NormalizedRows {
  static constexpr const char* name = "espalier::normalized_rows";

  ProductSetting setting;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const ProductArrays arrays(setting, inputs, 1, outputs[0]);
    for (int row = 0; row < arrays.rows(); ++row) {
      linear_cpu().convert_row(
          arrays.row(row),
          outputs[0].data<float>() + static_cast<std::size_t>(row) * arrays.columns());
    }
  }
};

/// What follows products that were computed elsewhere. Inputs: x, the products, then what
/// `ProductSetting` says.
struct FinishedProducts {
  static constexpr const char* name = "espalier::finished_products";

  ProductSetting setting;
  std::size_t count;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    std::vector<mx::array> products;
    for (std::size_t i = 1; i <= count; ++i) {
      products.push_back(row_contiguous(inputs[i]));
    }
    finish_products(products, setting, ProductArrays(setting, inputs, 1 + count, outputs[0]),
                    /* reference = */ false);
  }
};

}  // namespace

mx::array joined_product(const ProductCall& call, const std::vector<PackedMatrix>& weights,
                         const LinearOptions& options, bool now) {
  const bool reference =
      std::any_of(weights.begin(), weights.end(), [](const PackedMatrix& weight) {
        return weight.trellis && weight.trellis->contract == TrellisContract::reference;
      });
  return make_or_run(JoinedWork{.setting = call.setting,
                                .weights = weights,
                                .activations = options.activations,
                                .reference = reference},
                     call, call.inputs(), now);
}

mx::array trellis_product_on_gpu(const ProductCall& call, const std::vector<PackedMatrix>& weights,
                                 TrellisActivations activations) {
  mx::array x = call.x;
  if (call.setting.has_norm) {
    const ProductSetting norm{.activation = Activation::none,
                              .gated = false,
                              .has_norm = true,
                              .norm_eps = call.setting.norm_eps,
                              .has_bias = false,
                              .has_residual = false};
    x = make_node(NormalizedRows{norm}, x.shape(), mx::float32, {x, call.others[0]});
  }
  std::vector<mx::array> products;
  for (const PackedMatrix& weight : weights) {
    products.push_back(trellis_linear_gpu(x, *weight.trellis, activations));
  }
  return make_node(FinishedProducts{call.setting, products.size()}, call.shape, call.dtype,
                   call.inputs(products));
}

}  // namespace espalier::kernels
