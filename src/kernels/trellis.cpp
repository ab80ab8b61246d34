#include "kernels/trellis.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/linear_product.h"
#include "kernels/primitive.h"
#include "kernels/trellis_cpu.h"
#include "kernels/trellis_device.h"

namespace espalier::kernels {

namespace mx = mlx::core;

TrellisOperand::TrellisOperand(const TrellisMatrix& matrix)
    : codes(matrix.codes.data<std::uint32_t>()),
      format(matrix.format),
      inputs(matrix.columns),
      outputs(matrix.rows),
      multiplier(static_cast<std::int32_t>(trellis_hash(matrix.format.code).multiplier)),
      addend(static_cast<std::int32_t>(trellis_hash(matrix.format.code).addend)),
      mask((1 << matrix.format.state_bits) - 1) {}

namespace {

/// Rows that share a decoded tile.
constexpr int most_tile_rows = 512;

/// Rows of activations prepared for one matrix, or for all that are coded along their inputs.
struct PreparedActivations {
  std::vector<std::int32_t> words;
  std::vector<float> scales;
  std::vector<std::int32_t> centres;
  TrellisRows rows;

  PreparedActivations(int count, int blocks, bool few)
      : words(static_cast<std::size_t>(count) * blocks * trellis_activation_block / (few ? 1 : 2)),
        scales(static_cast<std::size_t>(count) * blocks),
        centres(2 * scales.size()),
        rows{.words = words.data(),
             .scales = scales.data(),
             .centres = centres.data(),
             .row_words = static_cast<std::int64_t>(words.size()) / count,
             .blocks = blocks} {}
};

/// One call with trellis-coded matrices and integer activations. Inputs: x, then what
/// `ProductSetting` says.
struct TrellisWork {
  static constexpr const char* name = "espalier::trellis_linear";

  ProductSetting setting;
  std::vector<TrellisMatrix> matrices;
  TrellisActivations activations;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const;

 private:
  struct Call;
  struct Scratch;

  void share_activations(Call& call) const;
  void prepare(const Call& call, std::size_t index, int row, float* values) const;
  void multiply(const Call& call, std::size_t matrix, int unit, int first_row, int count,
                Scratch& scratch, float* sums) const;
  void run_unit(const Call& call, int unit, int first_row, int count, Scratch& scratch) const;
};

struct TrellisWork::Call {
  const TrellisCpu& cpu;
  ProductArrays arrays;
  std::vector<TrellisOperand> operands;
  std::vector<PreparedActivations> prepared;
  std::vector<std::size_t> prepared_from;  // the matrix that each was made for
  std::vector<std::size_t> prepared_of;    // which of them each matrix takes
  int rows;
  bool few;
  int tile_rows;

  int units_of(std::size_t matrix) const {
    return (operands[matrix].outputs + cpu.unit - 1) / cpu.unit;
  }
  int row_tiles() const { return (rows + tile_rows - 1) / tile_rows; }
};

/// What a thread needs beside.
struct TrellisWork::Scratch {
  std::vector<float> values;
  std::vector<std::int32_t> tile;
  std::vector<float> sums;  // [tile rows, unit]
  std::vector<float> up;
  std::vector<float> lanes;  // [tile rows, 16]
  std::vector<float> up_lanes;

  explicit Scratch(const Call& call)
      : values(static_cast<std::size_t>(call.operands[0].blocks()) * trellis_activation_block),
        tile(call.few ? 0 : trellis_activation_block / 2 * call.cpu.unit),
        sums(static_cast<std::size_t>(call.tile_rows) * call.cpu.unit),
        up(sums.size()),
        lanes(static_cast<std::size_t>(call.tile_rows) * band_rows),
        up_lanes(lanes.size()) {}
};

void TrellisWork::prepare(const Call& call, std::size_t index, int row, float* values) const {
  const std::size_t from = call.prepared_from[index];
  const TrellisRows& rows = call.prepared[index].rows;
  const int inputs = call.arrays.columns();
  linear_cpu().convert_row(call.arrays.row(row), values);
  if (matrices[from].format.axis == 0) {
    const auto* scales = matrices[from].scales.data<float>();
    for (int i = 0; i < inputs; ++i) {
      values[i] *= scales[i];
    }
  }
  std::fill(values + inputs, values + rows.blocks * trellis_activation_block, 0.0F);
  call.cpu.prepare(call.operands[from], values, activations, call.few, rows, row);
}

void TrellisWork::multiply(const Call& call, std::size_t matrix, int unit, int first_row, int count,
                           Scratch& scratch, float* sums) const {
  const TrellisRows& rows = call.prepared[call.prepared_of[matrix]].rows;
  if (call.few) {
    call.cpu.few_rows(call.operands[matrix], rows, activations, count, unit, sums);
  } else {
    call.cpu.many_rows(call.operands[matrix], rows, first_row, count, unit, scratch.tile.data(),
                       sums);
  }
}

/// The last factor, for up to 16 outputs of a unit from `first` on.
void scale_lanes(const TrellisMatrix& matrix, const float* sums, int unit, int output, int lanes,
                 int rows, float* scaled) {
  float factors[band_rows] = {};
  for (int lane = 0; lane < lanes; ++lane) {
    factors[lane] = matrix.format.axis == 1
                        ? matrix.scales.data<float>()[output + lane] * trellis_reciprocal
                        : trellis_reciprocal;
  }
  for (int row = 0; row < rows; ++row) {
    for (int lane = 0; lane < lanes; ++lane) {
      scaled[row * band_rows + lane] =
          sums[static_cast<std::int64_t>(row) * unit + lane] * factors[lane];
    }
  }
}

void TrellisWork::run_unit(const Call& call, int unit, int first_row, int count,
                           Scratch& scratch) const {
  std::size_t matrix = 0;
  int column = 0;
  while (unit >= call.units_of(matrix)) {
    unit -= call.units_of(matrix);
    column += matrices[matrix].rows;
    ++matrix;
  }
  multiply(call, matrix, unit, first_row, count, scratch, scratch.sums.data());
  if (setting.gated) {
    multiply(call, 1, unit, first_row, count, scratch, scratch.up.data());
  }
  const int first = unit * call.cpu.unit;
  const int outputs = std::min(call.cpu.unit, matrices[matrix].rows - first);
  for (int lane = 0; lane < outputs; lane += band_rows) {
    const int lanes = std::min(band_rows, outputs - lane);
    OutputTile tile = call.arrays.tile(first_row, count, column + first + lane, lanes);
    scale_lanes(matrices[matrix], scratch.sums.data() + lane, call.cpu.unit, first + lane, lanes,
                count, scratch.lanes.data());
    tile.sums = scratch.lanes.data();
    if (setting.gated) {
      scale_lanes(matrices[1], scratch.up.data() + lane, call.cpu.unit, first + lane, lanes, count,
                  scratch.up_lanes.data());
      tile.up = scratch.up_lanes.data();
    }
    linear_cpu().finish(tile);
  }
}

/// Scales per input are part of the activations; without them one preparation does for all.
void TrellisWork::share_activations(Call& call) const {
  std::optional<std::size_t> shared;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const bool own = matrices[i].format.axis == 0;
    call.prepared_of.push_back(own ? call.prepared.size() : shared.value_or(call.prepared.size()));
    if (own || !shared) {
      shared = own ? shared : call.prepared.size();
      call.prepared_from.push_back(i);
      call.prepared.emplace_back(call.rows, call.operands[i].blocks(), call.few);
    }
  }
}

void TrellisWork::operator()(const std::vector<mx::array>& inputs,
                             std::vector<mx::array>& outputs) const {
  if (outputs[0].size() == 0) {
    return;
  }
  auto& pool = base::compute_pool();
  const int rows = inputs[0].shape(0);
  Call call{.cpu = trellis_cpu(),
            .arrays = ProductArrays(setting, inputs, 1, outputs[0]),
            .operands = {matrices.begin(), matrices.end()},
            .prepared = {},
            .prepared_from = {},
            .prepared_of = {},
            .rows = rows,
            .few = rows <= trellis_few_rows,
            .tile_rows = rows};
  share_activations(call);
  int units = 0;
  for (std::size_t i = 0; i < (setting.gated ? 1 : matrices.size()); ++i) {
    units += call.units_of(i);
  }
  while (!call.few && call.tile_rows > most_tile_rows / 8 &&
         (call.tile_rows > most_tile_rows || units * call.row_tiles() < 4 * pool.size())) {
    call.tile_rows = (call.tile_rows + 1) / 2;
  }
  base::TileCounter row_counter(call.prepared.size() * rows);
  base::TileCounter tiles(static_cast<std::size_t>(units) * call.row_tiles());
  pool.run([&](int) {
    Scratch scratch(call);
    for (std::size_t next; row_counter.next(next);) {
      prepare(call, next / rows, static_cast<int>(next % rows), scratch.values.data());
    }
    pool.barrier();
    for (std::size_t at; tiles.next(at);) {
      const int first_row = static_cast<int>(at % call.row_tiles()) * call.tile_rows;
      run_unit(call, static_cast<int>(at / call.row_tiles()), first_row,
               std::min(call.tile_rows, rows - first_row), scratch);
    }
  });
}

std::optional<ActivationFormat> activations_of(const PackedMatrix& weight,
                                               const LinearOptions& options) {
  if (!weight.trellis || weight.trellis->contract != TrellisContract::integer) {
    return std::nullopt;
  }
  return options.activations.value_or(weight.activations);
}

}  // namespace

bool is_trellis_product(const std::vector<PackedMatrix>& weights, const LinearOptions& options) {
  const auto first = activations_of(weights[0], options);
  return first && *first != ActivationFormat::f32 &&
         std::all_of(weights.begin(), weights.end(), [&](const PackedMatrix& weight) {
           return activations_of(weight, options) == first;
         });
}

mx::array trellis_product(const ProductCall& call, const std::vector<PackedMatrix>& weights,
                          const LinearOptions& options, bool now) {
  const auto activations = activations_of(weights[0], options) == ActivationFormat::int8
                               ? TrellisActivations::int8
                               : TrellisActivations::int15;
  if (!now && std::ranges::all_of(weights, [](const PackedMatrix& weight) {
        return runs_on_gpu(*weight.trellis);
      })) {
    return trellis_product_on_gpu(call, weights, activations);
  }
  TrellisWork work{.setting = call.setting, .matrices = {}, .activations = activations};
  for (const PackedMatrix& weight : weights) {
    work.matrices.push_back(*weight.trellis);
  }
  return make_or_run(std::move(work), call, call.inputs(), now);
}

mx::array trellis_linear(const mx::array& x, const TrellisMatrix& weight,
                         TrellisActivations activations) {
  const LinearOptions options{.activations = activations == TrellisActivations::int8
                                                 ? ActivationFormat::int8
                                                 : ActivationFormat::int15};
  return linear(x, {pack(weight)}, options, /* f32_output = */ true);
}

}  // namespace espalier::kernels
