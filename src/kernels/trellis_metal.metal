// Products with trellis-coded weights on Metal, in the integer contract. Unverified: written for
// the same results as the CPU and CUDA kernels, never run. Device functions alone; whoever launches
// them writes the kernel around one call.
#include <metal_stdlib>

#pragma clang fp contract(off)

namespace espalier {

constant constexpr int block_weights = 256;  // of a trellis block, and inputs of an activation block
constant constexpr int byte_offset = 510;    // what the byte sums are centered by

inline float reciprocal() { return as_type<float>(0x3BDDB447u); }
inline float deviation() { return as_type<float>(0x4313CCF0u); }

/// `code`: 0 for 1mad, 1 for mul1. Centered byte sum of weight `position` of a trellis block.
template <int bits, int state_bits, int code>
int byte_sum(const device uint* block, int position) {
  constexpr int words = 8 * bits;
  constexpr uint multiplier = code == 0 ? 34038481u : 0x83DCD12Du;
  constexpr uint addend = code == 0 ? 76625530u : 0u;
  const int bit = (block_weights - 1 - position) * bits;
  const int word = bit >> 5;
  const ulong window = ulong(block[word]) | ulong(block[(word + 1) % words]) << 32;
  const uint hash = (uint(window >> (bit & 31)) & ((1u << state_bits) - 1)) * multiplier + addend;
  return int((hash & 255) + (hash >> 8 & 255) + (hash >> 16 & 255) + (hash >> 24)) - byte_offset;
}

/// The exact value of a centered byte sum: the sum over the deviation, correctly rounded.
inline float exact_value(int sum) {
  const float y = float(sum);
  const float quotient = y * reciprocal();
  return metal::fma(metal::fma(-quotient, deviation(), y), reciprocal(), quotient);
}

/// Integers of one activation block of one row, one SIMD group each: integers [rows, padded inputs],
/// scales [rows, blocks]. x [rows, inputs]; input_scales [inputs] for axis 0.
template <int axis, int limit, typename T>
void prepare(const device T* x, const device float* input_scales, int rows, int inputs,
             device int* integers, device float* scales, uint group, uint lane, uint lanes) {
  const int blocks = (inputs + block_weights - 1) / block_weights;
  if (int(group) >= rows * blocks) {
    return;
  }
  const int row = int(group) / blocks;
  const int first = int(group) % blocks * block_weights;
  float largest = 0.0f;
  for (int i = first + int(lane); i < metal::min(first + block_weights, inputs); i += int(lanes)) {
    const float value = float(x[long(row) * inputs + i]);
    largest = metal::max(largest, metal::abs(axis == 0 ? value * input_scales[i] : value));
  }
  const float scale = metal::precise::divide(metal::simd_max(largest), float(limit));
  for (int i = first + int(lane); i < first + block_weights; i += int(lanes)) {
    int q = 0;
    if (i < inputs && scale > 0.0f) {
      const float value = float(x[long(row) * inputs + i]);
      const float scaled =
          metal::precise::divide(axis == 0 ? value * input_scales[i] : value, scale);
      q = int(metal::rint(metal::clamp(scaled, -float(limit), float(limit))));
    }
    integers[(long(row) * blocks * block_weights) + i] = q;
  }
  if (lane == 0) {
    scales[long(row) * blocks + first / block_weights] = scale > 0.0f ? scale : 0.0f;
  }
}

/// The next activation block's share: a product, then a sum, each rounded.
inline float add_block(float total, int high, int low, float scale) {
  const float exact = metal::fma(float(high), 256.0f, float(low));
  const float product = exact * scale;
  return total + product;
}

/// One SIMD group for each output and row, weights coded along inputs: out [rows, outputs].
template <int bits, int state_bits, int code>
void multiply_along_inputs(const device int* integers, const device float* scales,
                           const device uint* codes, const device float* output_scales, int rows,
                           int inputs, int outputs, device float* out, uint group, uint lane,
                           uint lanes) {
  if (int(group) >= rows * outputs) {
    return;
  }
  const int row = int(group) / outputs;
  const int output = int(group) % outputs;
  const int blocks = inputs / block_weights;
  float total = 0.0f;
  for (int block = 0; block < blocks; ++block) {
    const device uint* words = codes + (long(output) * blocks + block) * 8 * bits;
    const device int* q = integers + (long(row) * blocks + block) * block_weights;
    int high = 0;
    int low = 0;
    for (int i = int(lane); i < block_weights; i += int(lanes)) {
      const int y = byte_sum<bits, state_bits, code>(words, i);
      const int low_byte = int(char(q[i] & 255));
      high += y * ((q[i] - low_byte) / 256);
      low += y * low_byte;
    }
    total = add_block(total, metal::simd_sum(high), metal::simd_sum(low),
                      scales[long(row) * blocks + block]);
  }
  if (lane == 0) {
    out[long(row) * outputs + output] = total * (output_scales[output] * reciprocal());
  }
}

/// One thread for each output and row, weights coded along outputs: out [rows, outputs].
template <int bits, int state_bits, int code>
void multiply_along_outputs(const device int* integers, const device float* scales,
                            const device uint* codes, int rows, int inputs, int outputs,
                            device float* out, uint thread) {
  if (int(thread) >= rows * outputs) {
    return;
  }
  const int row = int(thread) / outputs;
  const int output = int(thread) % outputs;
  const int blocks = (inputs + block_weights - 1) / block_weights;
  float total = 0.0f;
  for (int block = 0; block < blocks; ++block) {
    int high = 0;
    int low = 0;
    for (int i = block * block_weights; i < metal::min((block + 1) * block_weights, inputs); ++i) {
      const device uint* words = codes + (long(output / block_weights) * inputs + i) * 8 * bits;
      const int y = byte_sum<bits, state_bits, code>(words, output % block_weights);
      const int q = integers[long(row) * blocks * block_weights + i];
      const int low_byte = int(char(q & 255));
      high += y * ((q - low_byte) / 256);
      low += y * low_byte;
    }
    total = add_block(total, high, low, scales[long(row) * blocks + block]);
  }
  out[long(row) * outputs + output] = total * reciprocal();
}

/// One thread for each weight of the stored matrix S [rows, 256 blocks]: out in row order. `groups`:
/// trellis blocks of all rows side by side, as weights coded along outputs are packed.
template <int bits, int state_bits, int code, bool groups, typename T>
void expand(const device uint* codes, const device float* scales, int rows, int blocks,
            device T* out, uint thread) {
  const int row = int(thread / uint(blocks * block_weights));
  if (row >= rows) {
    return;
  }
  const int block = int(thread) / block_weights % blocks;
  const long place = groups ? long(block) * rows + row : long(row) * blocks + block;
  const int sum =
      byte_sum<bits, state_bits, code>(codes + place * 8 * bits, int(thread) % block_weights);
  out[thread] = T(exact_value(sum) * scales[row]);
}

}  // namespace espalier
