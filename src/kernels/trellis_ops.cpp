#include <vector>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/primitive.h"
#include "kernels/trellis.h"

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

/// Expands to f32 [N, K]. Inputs: codes, scales.
struct ExpandWork {
  static constexpr const char* name = "espalier::expand_trellis";

  TrellisFormat format;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const std::vector<float> table = trellis_values(format);
    const auto* codes = inputs[0].data<std::uint32_t>();
    const auto* scales = inputs[1].data<float>();
    auto* values = outputs[0].data<float>();
    const std::int64_t rows = outputs[0].shape(0);
    const std::int64_t columns = outputs[0].shape(1);
    const std::int64_t lines = format.axis == 1 ? rows : columns;
    const std::int64_t blocks = (format.axis == 1 ? columns : rows) / trellis_block_weights;
    base::TileCounter counter(lines);
    base::compute_pool().run([&](int) {
      for (std::size_t next; counter.next(next);) {
        const auto line = static_cast<std::int64_t>(next);
        for (std::int64_t block = 0; block < blocks; ++block) {
          const std::int64_t at = format.axis == 1 ? line * blocks + block : block * lines + line;
          const std::uint32_t* words = codes + at * trellis_block_words(format.bits);
          for (int i = 0; i < trellis_block_weights; ++i) {
            const std::int64_t along = block * trellis_block_weights + i;
            values[format.axis == 1 ? line * columns + along : along * columns + line] =
                table[trellis_state(words, format, i)] * scales[line];
          }
        }
      }
    });
  }
};

}  // namespace

mx::array expand_trellis(const TrellisMatrix& weight, mx::Dtype dtype) {
  const mx::array values =
      make_node(ExpandWork{weight.format}, mx::Shape{weight.rows, weight.columns}, mx::float32,
                {weight.codes, weight.scales});
  return mx::astype(values, dtype);
}

mx::array trellis_linear_ops(const mx::array& x, const TrellisMatrix& weight) {
  return mx::matmul(mx::astype(x, mx::float32), mx::transpose(expand_trellis(weight, mx::float32)));
}

}  // namespace espalier::kernels
