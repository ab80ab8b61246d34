#pragma once

#include <memory>
#include <optional>

#include "kernels/recurrent_state.h"
#include "mlx/mlx.h"

namespace espalier::kernels {

// The recurrent parts of mixers, over ragged batches: all arrays are f32, and rows of different
// sequences lie side by side in [T, ...]. Each kernel takes a sequence's rows one after the other,
// so its bits depend neither on how the sequence was cut, nor on its neighbours, the thread count
// or the instruction set. The state is updated in place: `state` is replaced by an array that
// shares its buffer, and must have no other owner. `*_ops` gives the same by plain MLX operations:
// the reference of tests, and what runs where there is no kernel. Shapes that do not fit throw
// `std::invalid_argument`.

/// Depthwise causal convolution.
struct Convolution {
  mlx::core::array weight;               // [taps, C], oldest tap first; at most 16 taps
  std::optional<mlx::core::array> bias;  // [C]
  bool silu = false;                     // applied to the result
};

/// x [T, C], state [slots, taps - 1, C] with the rows before; gives [T, C].
mlx::core::array causal_convolution(const mlx::core::array& x, mlx::core::array& state,
                                    const std::shared_ptr<const RecurrentBatch>& batch,
                                    const Convolution& convolution);
mlx::core::array causal_convolution_ops(const mlx::core::array& x, mlx::core::array& state,
                                        const std::shared_ptr<const RecurrentBatch>& batch,
                                        const Convolution& convolution);

/// What a selective scan reads for each row.
struct SelectiveInputs {
  mlx::core::array x;          // [T, C]
  mlx::core::array time_step;  // [T, C], before bias and softplus
  mlx::core::array b;          // [T, N]
  mlx::core::array c;          // [T, N]
};

struct SelectiveWeights {
  mlx::core::array a;                         // [N, C], negative
  mlx::core::array skip;                      // [C]
  std::optional<mlx::core::array> step_bias;  // [C]
};

/// Mamba's scan (Gu & Dao 2023, algorithm 2): s = softplus(time_step + bias),
/// h = exp(s a) h + s b x, y = c h + skip x; the state is [slots, N recurrent_stride(C)]. Gives y
/// [T, C].
mlx::core::array selective_scan(const SelectiveInputs& inputs, mlx::core::array& state,
                                const std::shared_ptr<const RecurrentBatch>& batch,
                                const SelectiveWeights& weights);
mlx::core::array selective_scan_ops(const SelectiveInputs& inputs, mlx::core::array& state,
                                    const std::shared_ptr<const RecurrentBatch>& batch,
                                    const SelectiveWeights& weights);

/// h = decay h + x for decay, x [T, C]; the state is [slots, C]. Gives h [T, C].
mlx::core::array gated_recurrence(const mlx::core::array& decay, const mlx::core::array& x,
                                  mlx::core::array& state,
                                  const std::shared_ptr<const RecurrentBatch>& batch);
mlx::core::array gated_recurrence_ops(const mlx::core::array& decay, const mlx::core::array& x,
                                      mlx::core::array& state,
                                      const std::shared_ptr<const RecurrentBatch>& batch);

/// What a linear recurrence reads for each row. `H` heads of values share the `Hk` heads of keys
/// and queries evenly.
struct LinearRecurrenceInputs {
  mlx::core::array q;                    // [T, Hk, K]
  mlx::core::array k;                    // [T, Hk, K]
  mlx::core::array v;                    // [T, H, V]
  mlx::core::array decay;                // factors: [T, H], or one a key, [T, H, K]
  std::optional<mlx::core::array> beta;  // [T, H]: a delta rule with this rate
};

/// For each head S = decay S + k (x) d and y = q S, where d is v, or for a delta rule
/// beta (v - k (decay S)) (Yang et al. 2024): Mamba 2, lightning attention, gated DeltaNet, Kimi
/// delta attention. The state is [slots, H K recurrent_stride(V)]. Gives y [T, H, V].
mlx::core::array linear_recurrence(const LinearRecurrenceInputs& inputs, mlx::core::array& state,
                                   const std::shared_ptr<const RecurrentBatch>& batch);
mlx::core::array linear_recurrence_ops(const LinearRecurrenceInputs& inputs,
                                       mlx::core::array& state,
                                       const std::shared_ptr<const RecurrentBatch>& batch);

}  // namespace espalier::kernels
