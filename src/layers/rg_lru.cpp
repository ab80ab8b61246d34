#include "layers/rg_lru.h"

namespace espalier::layers {
namespace {

namespace mx = mlx::core;

/// 1 where a sequence begins, else 0: [T, 1].
mx::array first_rows(const RecurrentBatch& batch, int rows) {
  std::vector<float> first(static_cast<std::size_t>(rows), 0.0F);
  for (const kernels::RecurrentRows& sequence : batch) {
    if (sequence.position == 0 && sequence.rows > 0) {
      first[static_cast<std::size_t>(sequence.first_row)] = 1.0F;
    }
  }
  return mx::array(first.begin(), {rows, 1}, mx::float32);
}

}  // namespace

mx::array RgLru::mix(const mx::array& x, const Norm* norm, const RecurrentCall& call) const {
  const int channels = log_decay.shape(0);
  const int head_dim = channels / static_cast<int>(gates.size());
  const mx::array projected = in_proj(x, {.norm = norm, .f32_output = true});
  const mx::array input = conv1d(columns(projected, 0, channels), call);
  std::vector<mx::array> input_gates;
  std::vector<mx::array> recurrence_gates;
  for (std::size_t head = 0; head < gates.size(); ++head) {
    const mx::array both = gates[head](columns(input, static_cast<int>(head) * head_dim, head_dim));
    input_gates.push_back(columns(both, 0, head_dim));
    recurrence_gates.push_back(columns(both, head_dim, head_dim));
  }
  const mx::array input_gate = mx::sigmoid(mx::concatenate(input_gates, 1));
  const mx::array decay_log = mx::sigmoid(mx::concatenate(recurrence_gates, 1)) * log_decay;
  // Keeps the state's variance; a first input enters as it is.
  const mx::array one(1.0F);
  const mx::array first = first_rows(*call.batch, x.shape(0));
  const mx::array kept = mx::sqrt(one - mx::exp(decay_log + decay_log));
  const mx::array multiplier = first + (one - first) * kept;
  const mx::array h = kernels::gated_recurrence(mx::exp(decay_log), input * input_gate * multiplier,
                                                call.state.state, call.batch);
  const mx::array y = kernels::elementwise(columns(projected, channels, channels), function);
  return mx::astype(h * y, x.dtype());
}

std::size_t RgLru::bytes() const {
  std::size_t total = in_proj.bytes() + out_proj.bytes();
  for (const Linear& gate : gates) {
    total += gate.bytes();
  }
  return total;
}

}  // namespace espalier::layers
