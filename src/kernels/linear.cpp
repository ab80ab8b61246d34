#include "kernels/linear.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/packed_matrix.h"
#include "kernels/primitive.h"

namespace espalier::kernels {

namespace mx = mlx::core;

namespace {

ElementType element_type(mx::Dtype dtype) {
  if (dtype == mx::float32) {
    return ElementType::f32;
  }
  if (dtype == mx::float16) {
    return ElementType::f16;
  }
  if (dtype == mx::bfloat16) {
    return ElementType::bf16;
  }
  throw std::invalid_argument("[linear] expected f32, f16 or bf16 activations");
}

Activation to_activation(const std::optional<Gate>& gate) {
  if (!gate) {
    return Activation::none;
  }
  switch (*gate) {
    case Gate::silu:
      return Activation::silu;
    case Gate::gelu_tanh:
      return Activation::gelu_tanh;
    case Gate::gelu_erf:
      return Activation::gelu_erf;
    case Gate::relu:
      return Activation::relu;
  }
  return Activation::none;
}

/// Memory that a thread keeps between calls.
template <class T>
class Scratch {
 public:
  T* get(std::size_t count) {
    if (count > values_.size()) {
      values_ = std::vector<T>(count);
    }
    return values_.data();
  }

 private:
  std::vector<T> values_;
};

/// Rows of activations as a product takes them: int8 blocks or f32.
struct PreparedRows {
  ActivationBlock* blocks;
  float* values;
};

/// The activations' bytes of one row tile: what the second-level cache holds beside the weights.
constexpr std::int64_t row_tile_bytes = 192 << 10;
constexpr int max_row_tile = 128;
/// Up to so many elements each thread prepares all rows for itself, which costs less than meeting
/// the others.
constexpr std::int64_t private_elements = 4096;
/// Multiplications below which waking other threads costs more than it brings.
constexpr std::int64_t serial_products = 1 << 15;
/// How many pieces the work is cut into per thread, so that a slow core can take fewer.
constexpr int pieces_per_thread = 8;

/// One call of `linear`; see there. Inputs: x, the matrices, then norm weight, bias, residual where
/// given.
struct LinearWork {
  static constexpr const char* name = "espalier::linear";

  std::vector<BandMatrix> matrices;
  Activation activation;
  bool gated;
  bool has_norm;
  float norm_eps;
  bool has_bias;
  bool has_residual;
  bool int8;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const;

 private:
  struct Call;

  /// Bands of output, each of one matrix or of both when gated.
  int units() const {
    int count = 0;
    for (const auto& matrix : matrices) {
      count += matrix.bands();
    }
    return gated ? count / 2 : count;
  }
  void prepare(const Call& call, int first, int last, const PreparedRows& prepared) const;
  void multiply(const Call& call, const PreparedRows& prepared, int matrix, int band, int first_row,
                int rows, float* sums) const;
  void run_unit(const Call& call, const PreparedRows& prepared, int unit, int first_row,
                int rows) const;
  void run_tiles(const Call& call, const PreparedRows& prepared, base::TileCounter& tiles) const;
};

/// What all threads of one call share.
struct LinearWork::Call {
  const LinearCpu& cpu;
  mx::array x;
  std::vector<mx::array> weights;
  const float* norm_weight = nullptr;
  const float* bias = nullptr;
  std::optional<mx::array> residual;
  mx::array output;
  int rows;     // T
  int columns;  // K
  int outputs;  // width of the result
  int units;
  int row_tile;
  int units_per_tile;
};

void LinearWork::prepare(const Call& call, int first, int last,
                         const PreparedRows& prepared) const {
  const std::size_t row_bytes = call.columns * call.x.itemsize();
  for (int row = first; row < last; ++row) {
    const ActivationRow source{.data = call.x.data<char>() + row * row_bytes,
                               .type = element_type(call.x.dtype()),
                               .columns = call.columns,
                               .norm_weight = call.norm_weight,
                               .norm_eps = norm_eps};
    if (prepared.blocks != nullptr) {
      call.cpu.quantize_row(
          source, prepared.blocks + static_cast<std::size_t>(row) * (call.columns / block_inputs));
    }
    if (prepared.values != nullptr) {
      call.cpu.convert_row(source, prepared.values + static_cast<std::size_t>(row) * call.columns);
    }
  }
}

void LinearWork::multiply(const Call& call, const PreparedRows& prepared, int matrix, int band,
                          int first_row, int rows, float* sums) const {
  const BandMatrix& shape = matrices[matrix];
  const LinearCpu::Format& format = call.cpu.formats[static_cast<int>(shape.type)];
  const std::uint8_t* data = shape.band(call.weights[matrix], band);
  const auto row = static_cast<std::size_t>(first_row);
  if (int8 && shape.quantized()) {
    format.multiply_int8(data, call.columns, prepared.blocks + row * (call.columns / block_inputs),
                         rows, sums);
  } else {
    format.multiply_f32(data, call.columns, prepared.values + row * call.columns, rows, sums);
  }
}

void LinearWork::run_unit(const Call& call, const PreparedRows& prepared, int unit, int first_row,
                          int rows) const {
  int matrix = 0;
  int column = 0;
  int band = unit;
  while (band >= matrices[matrix].bands()) {
    band -= matrices[matrix].bands();
    column += matrices[matrix].rows;
    ++matrix;
  }
  column += band * band_rows;
  alignas(64) float sums[max_row_tile * band_rows];
  alignas(64) float up[max_row_tile * band_rows];
  multiply(call, prepared, matrix, band, first_row, rows, sums);
  if (gated) {
    multiply(call, prepared, 1, band, first_row, rows, up);
  }
  const auto offset = static_cast<std::size_t>(first_row) * call.outputs + column;
  OutputTile tile{};
  tile.sums = sums;
  tile.up = gated ? up : nullptr;
  tile.bias = has_bias ? call.bias + column : nullptr;
  tile.up_bias = has_bias && gated ? call.bias + call.outputs + column : nullptr;
  tile.activation = activation;
  tile.residual =
      call.residual ? call.residual->data<char>() + offset * call.residual->itemsize() : nullptr;
  tile.output = const_cast<char*>(call.output.data<char>()) + offset * call.output.itemsize();
  tile.stride = call.outputs;
  tile.rows = rows;
  tile.lanes = matrices[matrix].rows_of(band);
  tile.residual_type = element_type(call.x.dtype());
  tile.output_type = element_type(call.output.dtype());
  call.cpu.finish(tile);
}

void LinearWork::run_tiles(const Call& call, const PreparedRows& prepared,
                           base::TileCounter& tiles) const {
  const int column_tiles = (call.units + call.units_per_tile - 1) / call.units_per_tile;
  for (std::size_t tile; tiles.next(tile);) {
    const int first_row = static_cast<int>(tile / column_tiles) * call.row_tile;
    const int rows = std::min(call.row_tile, call.rows - first_row);
    const int first = static_cast<int>(tile % column_tiles) * call.units_per_tile;
    const int last = std::min(first + call.units_per_tile, call.units);
    for (int unit = first; unit < last; ++unit) {
      run_unit(call, prepared, unit, first_row, rows);
    }
  }
}

void LinearWork::operator()(const std::vector<mx::array>& inputs,
                            std::vector<mx::array>& outputs) const {
  const std::size_t matrix_count = matrices.size();
  Call call{.cpu = linear_cpu(),
            .x = row_contiguous(inputs[0]),
            .weights = {inputs.begin() + 1, inputs.begin() + 1 + matrix_count},
            .residual = std::nullopt,
            .output = outputs[0],
            .rows = inputs[0].shape(0),
            .columns = inputs[0].shape(1),
            .outputs = outputs[0].shape(1),
            .units = units(),
            .row_tile = 0,
            .units_per_tile = 0};
  std::vector<mx::array> extra;
  for (auto input = inputs.begin() + 1 + matrix_count; input != inputs.end(); ++input) {
    extra.push_back(row_contiguous(*input));
  }
  auto next = extra.begin();
  call.norm_weight = has_norm ? (next++)->data<float>() : nullptr;
  call.bias = has_bias ? (next++)->data<float>() : nullptr;
  if (has_residual) {
    call.residual = *next;
  }
  if (call.rows == 0) {
    return;
  }

  bool any_int8 = false;
  bool any_f32 = false;
  for (const auto& matrix : matrices) {
    (int8 && matrix.quantized() ? any_int8 : any_f32) = true;
  }
  const auto elements = static_cast<std::int64_t>(call.rows) * call.columns;
  const std::int64_t row_bytes = static_cast<std::int64_t>(call.columns) * (any_f32 ? 4 : 2);
  call.row_tile = static_cast<int>(
      std::clamp<std::int64_t>(row_tile_bytes / row_bytes / 12 * 12, 12, max_row_tile));
  const int row_tiles = (call.rows + call.row_tile - 1) / call.row_tile;
  auto& pool = base::compute_pool();
  call.units_per_tile = std::max(1, call.units * row_tiles / (pool.size() * pieces_per_thread));
  const int column_tiles = (call.units + call.units_per_tile - 1) / call.units_per_tile;
  base::TileCounter tiles(static_cast<std::size_t>(row_tiles) * column_tiles);

  const auto make_rows = [&] {
    thread_local Scratch<ActivationBlock> block_scratch;
    thread_local Scratch<float> value_scratch;
    return PreparedRows{any_int8 ? block_scratch.get(elements / block_inputs) : nullptr,
                        any_f32 ? value_scratch.get(elements) : nullptr};
  };
  const auto private_work = [&](int) {
    const PreparedRows prepared = make_rows();
    prepare(call, 0, call.rows, prepared);
    run_tiles(call, prepared, tiles);
  };
  if (elements * call.units * band_rows <= serial_products) {
    private_work(0);
  } else if (elements <= private_elements) {
    pool.run(private_work);
  } else {
    const PreparedRows prepared = make_rows();
    base::TileCounter row_counter(call.rows);
    pool.run([&](int) {
      for (std::size_t row; row_counter.next(row);) {
        prepare(call, static_cast<int>(row), static_cast<int>(row) + 1, prepared);
      }
      pool.barrier();
      run_tiles(call, prepared, tiles);
    });
  }
}

void check(bool fits, const std::string& message) {
  if (!fits) {
    throw std::invalid_argument("[linear] expected " + message);
  }
}

}  // namespace

mx::array linear(const mx::array& x, const std::vector<PackedMatrix>& weights,
                 const LinearOptions& options, bool f32_output) {
  check(x.ndim() == 2 && !weights.empty(), "x of two dimensions and at least one matrix");
  element_type(x.dtype());
  LinearWork work{.matrices = {},
                  .activation = to_activation(options.gate),
                  .gated = options.gate.has_value(),
                  .has_norm = options.norm.has_value(),
                  .norm_eps = options.norm ? options.norm->eps : 0.0F,
                  .has_bias = options.bias.has_value(),
                  .has_residual = options.residual.has_value(),
                  .int8 = options.activations == ActivationFormat::int8};
  std::vector<mx::array> inputs{x};
  int outputs = 0;
  for (const auto& weight : weights) {
    check(weight.columns == x.shape(1), "matrices of as many columns as x");
    work.matrices.emplace_back(weight);
    inputs.push_back(weight.data);
    outputs += weight.rows;
  }
  if (options.gate) {
    check(weights.size() == 2 && weights[0].rows == weights[1].rows,
          "a gate with two matrices of equal shape");
    outputs /= 2;
  }
  if (options.norm) {
    check(options.norm->weight.size() == static_cast<std::size_t>(x.shape(1)) &&
              options.norm->weight.dtype() == mx::float32,
          "a f32 norm weight of K elements");
    inputs.push_back(options.norm->weight);
  }
  if (options.bias) {
    const int biases = options.gate ? 2 * outputs : outputs;
    check(options.bias->size() == static_cast<std::size_t>(biases) &&
              options.bias->dtype() == mx::float32,
          "a f32 bias of as many elements as the matrices have rows");
    inputs.push_back(*options.bias);
  }
  if (options.residual) {
    check(options.residual->shape() == mx::Shape{x.shape(0), outputs} &&
              options.residual->dtype() == x.dtype(),
          "a residual of the result's shape and x's dtype");
    inputs.push_back(*options.residual);
  }
  return make_node(std::move(work), mx::Shape{x.shape(0), outputs},
                   f32_output ? mx::float32 : x.dtype(), std::move(inputs));
}

}  // namespace espalier::kernels
