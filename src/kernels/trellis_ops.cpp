#include <vector>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/primitive.h"
#include "kernels/trellis_cpu.h"

namespace espalier::kernels {

namespace mx = mlx::core;

std::vector<float> trellis_values(const TrellisFormat& format) {
  std::vector<float> table(std::size_t{1} << format.state_bits);
  const TrellisHash hash = trellis_hash(format.code);
  for (std::size_t state = 0; state < table.size(); ++state) {
    table[state] = static_cast<float>(trellis_byte_sum(hash, static_cast<std::uint32_t>(state))) /
                   trellis_deviation;
  }
  return table;
}

namespace {

/// Expands to f32 [N, K].
struct ExpandWork {
  static constexpr const char* name = "espalier::expand_trellis";

  TrellisMatrix matrix;

  void operator()(const std::vector<mx::array>&, std::vector<mx::array>& outputs) const {
    const TrellisFormat& format = matrix.format;
    const TrellisOperand operand(matrix);
    const std::vector<float> table = trellis_values(format);
    const auto* scales = matrix.scales.data<float>();
    auto* values = outputs[0].data<float>();
    const std::int64_t columns = matrix.columns;
    const bool along_inputs = format.axis == 1;
    const int lines = along_inputs ? matrix.rows : matrix.columns;
    const int blocks = (along_inputs ? matrix.columns : matrix.rows) / trellis_block_weights;
    base::TileCounter counter(lines);
    base::compute_pool().run([&](int) {
      for (std::size_t next; counter.next(next);) {
        const auto line = static_cast<std::int64_t>(next);
        for (std::int64_t block = 0; block < blocks; ++block) {
          const std::uint32_t* words =
              along_inputs ? operand.output_block(line, block) : operand.input_block(line, block);
          for (int i = 0; i < trellis_block_weights; ++i) {
            const std::int64_t along = block * trellis_block_weights + i;
            const auto state = trellis_state(words, format.block_bits(block), format.state_bits, i);
            values[along_inputs ? line * columns + along : along * columns + line] =
                table[state] * scales[line];
          }
        }
      }
    });
  }
};

}  // namespace

mx::array expand_trellis(const TrellisMatrix& weight, mx::Dtype dtype) {
  const mx::array values =
      make_node(ExpandWork{weight}, mx::Shape{weight.rows, weight.columns}, mx::float32, {});
  return mx::astype(values, dtype);
}

mx::array trellis_linear_ops(const mx::array& x, const TrellisMatrix& weight) {
  return mx::matmul(mx::astype(x, mx::float32), mx::transpose(expand_trellis(weight, mx::float32)));
}

}  // namespace espalier::kernels
