#include "kernels/linear.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/element_type.h"
#include "kernels/linear_product.h"
#include "kernels/packed_matrix.h"
#include "kernels/primitive.h"

namespace espalier::kernels {

namespace mx = mlx::core;

namespace {

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

/// Rows of activations as products take them; null where none takes them so.
struct PreparedRows {
  ActivationBlock* blocks;
  WideActivationBlock* wide_blocks;
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
/// What is fetched of a thread's first weights while it prepares its activations.
constexpr int first_bytes = 1024;

/// Bands of one row's outputs that are finished together.
constexpr int bands_at_once = 32;

/// One call of `linear`; see there. Inputs: x, the matrices, then norm weight, bias, residual where
/// given.
struct LinearWork {
  static constexpr const char* name = "espalier::linear";

  ProductSetting setting;
  std::vector<BandMatrix> matrices;
  std::vector<ActivationFormat> formats;  // of each matrix

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const;

 private:
  struct Call;

  /// Where the weights of a unit lie, the first ones when gated, and its first output.
  struct BandPlace {
    int matrix;
    int band;
    int column;
  };

  Call bind(const std::vector<mx::array>& inputs, const mx::array& output) const;
  BandPlace find_band(int unit) const {
    BandPlace place{.matrix = 0, .band = unit, .column = 0};
    while (place.band >= matrices[place.matrix].bands()) {
      place.band -= matrices[place.matrix].bands();
      place.column += matrices[place.matrix].rows;
      ++place.matrix;
    }
    place.column += place.band * band_rows;
    return place;
  }
  bool uses(ActivationFormat format) const {
    return std::find(formats.begin(), formats.end(), format) != formats.end();
  }
  /// Bands of output, each of one matrix or of both when gated.
  int units() const {
    int count = 0;
    for (const auto& matrix : matrices) {
      count += matrix.bands();
    }
    return setting.gated ? count / 2 : count;
  }
  void prepare(const Call& call, int first, int last, const PreparedRows& prepared) const;
  void multiply(const Call& call, const PreparedRows& prepared, int matrix, int band, int first_row,
                int rows, float* sums) const;
  /// How many of the units from `unit` to `last` to finish as one.
  int units_together(const Call& call, int unit, int last) const;
  void run_units(const Call& call, const PreparedRows& prepared, int unit, int count, int first_row,
                 int rows) const;
  /// Starts to read the weights of a unit.
  void fetch_unit(const Call& call, int unit) const;
  void run_tiles(const Call& call, const PreparedRows& prepared, base::TileShares& tiles,
                 int worker) const;
};

/// What all threads of one call share.
struct LinearWork::Call {
  const LinearCpu& cpu;
  mx::array x;
  const mx::array* weights;
  std::optional<mx::array> norm_weight;
  std::optional<mx::array> bias;
  std::optional<mx::array> residual;
  mx::array output;
  int rows;     // T
  int columns;  // K
  int outputs;  // width of the result
  int units;
  bool any_int8;  // matrices multiplied by activations of each format
  bool any_int15;
  bool any_f32;
  int row_tile;

  int row_tiles() const { return (rows + row_tile - 1) / row_tile; }
  std::int64_t elements() const { return static_cast<std::int64_t>(rows) * columns; }
  /// Memory of the calling thread for all rows, valid until its next call.
  PreparedRows make_rows() const;
};

PreparedRows LinearWork::Call::make_rows() const {
  thread_local Scratch<ActivationBlock> blocks;
  thread_local Scratch<WideActivationBlock> wide_blocks;
  thread_local Scratch<float> values;
  return {any_int8 ? blocks.get(elements() / block_inputs) : nullptr,
          any_int15 ? wide_blocks.get(elements() / block_inputs) : nullptr,
          any_f32 ? values.get(elements()) : nullptr};
}

void LinearWork::prepare(const Call& call, int first, int last,
                         const PreparedRows& prepared) const {
  const std::size_t row_bytes = call.columns * call.x.itemsize();
  const float* norm_weight = call.norm_weight ? call.norm_weight->data<float>() : nullptr;
  for (int row = first; row < last; ++row) {
    const ActivationRow source{.data = call.x.data<char>() + row * row_bytes,
                               .type = element_type(call.x.dtype()),
                               .columns = call.columns,
                               .norm_weight = norm_weight,
                               .norm_eps = setting.norm_eps};
    const auto block = static_cast<std::size_t>(row) * (call.columns / block_inputs);
    if (prepared.blocks != nullptr) {
      call.cpu.quantize_row(source, prepared.blocks + block);
    }
    if (prepared.wide_blocks != nullptr) {
      call.cpu.quantize_row_wide(source, prepared.wide_blocks + block);
    }
    if (prepared.values != nullptr) {
      call.cpu.convert_row(source, prepared.values + static_cast<std::size_t>(row) * call.columns);
    }
  }
}

void LinearWork::multiply(const Call& call, const PreparedRows& prepared, int matrix, int band,
                          int first_row, int rows, float* sums) const {
  const BandMatrix& weights = matrices[matrix];
  const FormatKernels& kernels = call.cpu.format(weights.type);
  const std::uint8_t* data = weights.band(call.weights[matrix], band);
  const auto row = static_cast<std::size_t>(first_row);
  const std::size_t block = row * (call.columns / block_inputs);
  switch (formats[matrix]) {
    case ActivationFormat::int8:
      kernels.multiply_int8(weights.shape(), data, prepared.blocks + block, rows, sums);
      break;
    case ActivationFormat::int15:
      kernels.multiply_int15(weights.shape(), data, prepared.wide_blocks + block, rows, sums);
      break;
    case ActivationFormat::f32:
      kernels.multiply_f32(weights.shape(), data, prepared.values + row * call.columns, rows, sums);
  }
}

void LinearWork::fetch_unit(const Call& call, int unit) const {
  const BandPlace place = find_band(unit);
  for (int matrix = place.matrix; matrix <= (setting.gated ? 1 : place.matrix); ++matrix) {
    if (matrices[matrix].source) continue;  // to be made first
    const std::uint8_t* data = matrices[matrix].band(call.weights[matrix], place.band);
    for (int line = 0; line < first_bytes; line += 64) {
      __builtin_prefetch(data + line);
    }
  }
}

int LinearWork::units_together(const Call& call, int unit, int last) const {
  if (call.rows > 1 || call.bias) {
    return 1;
  }
  const BandPlace place = find_band(unit);
  const int whole_bands = matrices[place.matrix].rows / band_rows - place.band;
  return std::clamp(whole_bands, 1, std::min(last - unit, bands_at_once));
}

void LinearWork::run_units(const Call& call, const PreparedRows& prepared, int unit, int count,
                           int first_row, int rows) const {
  const auto [matrix, band, column] = find_band(unit);
  alignas(64) float sums[max_row_tile * band_rows];
  alignas(64) float up[max_row_tile * band_rows];
  for (int i = 0; i < count; ++i) {
    multiply(call, prepared, matrix, band + i, first_row, rows, sums + i * band_rows);
    if (setting.gated) {
      multiply(call, prepared, 1, band + i, first_row, rows, up + i * band_rows);
    }
  }
  const auto offset = static_cast<std::size_t>(first_row) * call.outputs + column;
  OutputTile tile{};
  tile.sums = sums;
  tile.up = setting.gated ? up : nullptr;
  tile.bias = call.bias ? call.bias->data<float>() + column : nullptr;
  tile.up_bias = call.bias && setting.gated ? tile.bias + call.outputs : nullptr;
  tile.activation = setting.activation;
  tile.residual =
      call.residual ? call.residual->data<char>() + offset * call.residual->itemsize() : nullptr;
  tile.output = const_cast<char*>(call.output.data<char>()) + offset * call.output.itemsize();
  // The outputs of several bands of one row are as good as rows of 16.
  tile.stride = count > 1 ? band_rows : call.outputs;
  tile.rows = count > 1 ? count : rows;
  tile.lanes = matrices[matrix].rows_of(band);
  tile.residual_type = element_type(call.x.dtype());
  tile.output_type = element_type(call.output.dtype());
  call.cpu.finish(tile);
}

void LinearWork::run_tiles(const Call& call, const PreparedRows& prepared, base::TileShares& tiles,
                           int worker) const {
  const auto units = static_cast<std::size_t>(call.units);
  std::size_t last;
  for (std::size_t tile; tiles.next(worker, tile, last);) {
    while (tile < last) {
      const int first_row = static_cast<int>(tile / units) * call.row_tile;
      const int unit = static_cast<int>(tile % units);
      const int count = units_together(call, unit, unit + static_cast<int>(last - tile));
      run_units(call, prepared, unit, count, first_row,
                std::min(call.row_tile, call.rows - first_row));
      tile += static_cast<std::size_t>(count);
    }
  }
}

LinearWork::Call LinearWork::bind(const std::vector<mx::array>& inputs,
                                  const mx::array& output) const {
  const std::size_t matrix_count = matrices.size();
  Call call{.cpu = linear_cpu(),
            .x = row_contiguous(inputs[0]),
            .weights = inputs.data() + 1,
            .norm_weight = std::nullopt,
            .bias = std::nullopt,
            .residual = std::nullopt,
            .output = output,
            .rows = inputs[0].shape(0),
            .columns = inputs[0].shape(1),
            .outputs = output.shape(1),
            .units = units(),
            .any_int8 = uses(ActivationFormat::int8),
            .any_int15 = uses(ActivationFormat::int15),
            .any_f32 = uses(ActivationFormat::f32),
            .row_tile = 0};
  auto next = inputs.begin() + 1 + matrix_count;
  if (setting.has_norm) {
    call.norm_weight = row_contiguous(*next++);
  }
  if (setting.has_bias) {
    call.bias = row_contiguous(*next++);
  }
  if (setting.has_residual) {
    call.residual = row_contiguous(*next++);
  }
  const std::int64_t element_bytes = call.any_f32 ? std::int64_t{sizeof(float)}
                                     : call.any_int15
                                         ? sizeof(WideActivationBlock) / block_inputs + 1
                                         : sizeof(ActivationBlock) / block_inputs + 1;
  const std::int64_t row_bytes = call.columns * element_bytes;
  call.row_tile = static_cast<int>(
      std::clamp<std::int64_t>(row_tile_bytes / row_bytes / 8 * 8, 8, max_row_tile));
  return call;
}

void LinearWork::operator()(const std::vector<mx::array>& inputs,
                            std::vector<mx::array>& outputs) const {
  if (outputs[0].size() == 0) {
    return;
  }
  auto& pool = base::compute_pool();
  const Call call = bind(inputs, outputs[0]);
  const bool serial = call.elements() * call.outputs <= serial_products;
  thread_local base::TileShares own_tiles;  // kept between calls
  base::TileShares& tiles = own_tiles;      // the other threads mean this thread's
  tiles.reset(static_cast<std::size_t>(call.row_tiles()) * call.units, serial ? 1 : pool.size());
  const auto private_work = [&](int worker) {
    fetch_unit(call, static_cast<int>(tiles.first(worker) % call.units));
    const PreparedRows prepared = call.make_rows();
    prepare(call, 0, call.rows, prepared);
    run_tiles(call, prepared, tiles, worker);
  };
  if (serial) {
    private_work(0);
  } else if (call.elements() <= private_elements) {
    pool.run(private_work);
  } else {
    const PreparedRows prepared = call.make_rows();
    base::TileCounter row_counter(call.rows);
    pool.run([&](int worker) {
      for (std::size_t row; row_counter.next(row);) {
        prepare(call, static_cast<int>(row), static_cast<int>(row) + 1, prepared);
      }
      pool.barrier();
      run_tiles(call, prepared, tiles, worker);
    });
  }
}

/// A product of packed bands, as a node or at once.
mx::array band_product(const ProductCall& call, const std::vector<PackedMatrix>& weights,
                       const LinearOptions& options, bool now) {
  LinearWork work{.setting = call.setting, .matrices = {}, .formats = {}};
  work.matrices.reserve(weights.size());
  work.formats.reserve(weights.size());
  std::vector<mx::array> matrices;
  matrices.reserve(weights.size());
  for (const auto& weight : weights) {
    const BandMatrix& matrix = work.matrices.emplace_back(weight);
    work.formats.push_back(matrix.takes_integers()
                               ? options.activations.value_or(weight.activations)
                               : ActivationFormat::f32);
    matrices.push_back(weight.data);
  }
  return make_or_run(std::move(work), call, call.inputs(matrices), now);
}

mx::array any_product(const mx::array& x, const std::vector<PackedMatrix>& weights,
                      const LinearOptions& options, bool f32_output, bool now) {
  const ProductCall call = check_product(x, weights, options, f32_output);
  const auto is_trellis = [](const PackedMatrix& weight) { return weight.trellis.has_value(); };
  if (std::none_of(weights.begin(), weights.end(), is_trellis)) {
    return band_product(call, weights, options, now);
  }
  return is_trellis_product(weights, options) ? trellis_product(call, weights, options, now)
                                              : joined_product(call, weights, options, now);
}

}  // namespace

mx::array linear(const mx::array& x, const std::vector<PackedMatrix>& weights,
                 const LinearOptions& options, bool f32_output) {
  return any_product(x, weights, options, f32_output, /* now = */ false);
}

mx::array linear_now(const mx::array& x, const std::vector<PackedMatrix>& weights,
                     const LinearOptions& options, bool f32_output) {
  return any_product(x, weights, options, f32_output, /* now = */ true);
}

}  // namespace espalier::kernels
