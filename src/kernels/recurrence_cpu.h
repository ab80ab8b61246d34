#pragma once

namespace espalier::kernels {

/// Channels, or columns of a state, that one task takes at most.
inline constexpr int recurrence_tile = 64;
/// Of a causal convolution.
inline constexpr int most_taps = 16;

/// Some channels of one sequence's rows in a causal convolution.
struct ConvolutionTask {
  const float* x;  // the first row's first channel
  float* out;
  int row_stride;       // floats between rows of x and out
  float* state;         // [taps - 1, row_stride]: earlier rows; overwritten
  bool starts;          // the state counts as zero
  const float* weight;  // [taps, row_stride], oldest tap first
  const float* bias;    // null: none
  int taps;
  int rows;
  int channels;
  bool silu;
};

/// Some channels of one sequence's rows in a selective scan (Mamba).
struct SelectiveTask {
  const float* x;  // rows of row_stride floats, as time_step and out
  const float* time_step;
  float* out;
  int row_stride;
  const float* b;  // rows of bc_stride floats, as c
  const float* c;
  int bc_stride;
  const float* a;          // [states, row_stride]
  const float* skip;       // [channels]
  const float* step_bias;  // [channels]; null: none
  float* state;            // [states, state_stride]
  int state_stride;
  bool starts;
  int states;
  int rows;
  int channels;
};

/// Some channels of one sequence's rows in h = decay * h + x.
struct GatedTask {
  const float* decay;
  const float* x;
  float* out;
  int row_stride;
  float* state;
  bool starts;
  int rows;
  int channels;
};

/// Some value columns of one head of one sequence in a linear recurrence.
struct LinearRecurrenceTask {
  const float* q;  // rows of q_stride floats, `keys` of them used; as k
  const float* k;
  const float* v;      // rows of v_stride floats, as out
  const float* decay;  // rows of decay_stride floats: one, or one a key
  const float* beta;   // rows of beta_stride floats, one used; null: not a delta rule
  float* out;
  int q_stride;
  int k_stride;
  int v_stride;
  int decay_stride;
  int beta_stride;
  bool decay_per_key;
  float* state;  // [keys, state_stride]
  int state_stride;
  bool starts;
  int keys;
  int rows;
  int columns;  // at most recurrence_tile
};

/// The recurrent kernels for one instruction set.
struct RecurrenceCpu {
  void (*convolution)(const ConvolutionTask& task);
  void (*selective)(const SelectiveTask& task);
  void (*gated)(const GatedTask& task);
  void (*linear)(const LinearRecurrenceTask& task);
};

const RecurrenceCpu& recurrence_cpu_scalar();
const RecurrenceCpu& recurrence_cpu_avx2();
const RecurrenceCpu& recurrence_cpu_avx512();

/// Those of `instruction_set()`.
const RecurrenceCpu& recurrence_cpu();

}  // namespace espalier::kernels
