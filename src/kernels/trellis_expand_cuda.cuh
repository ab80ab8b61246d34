// Exact values of trellis-coded weights on CUDA, and whole matrices of them.
#ifndef ESPALIER_TRELLIS_CUDA
#include "kernels/trellis_cuda.cuh"
#endif

namespace espalier {

/// The exact value of the hash of a state: its centered byte sum over the deviation, correctly
/// rounded.
__device__ __forceinline__ float exact_value(unsigned hash) {
  // The sum in the low bits of 2^23 as a float.
  const unsigned bits = __dp4a(hash, 0x01010101u, 0x4B000000u);
  const float y = __fsub_rn(__uint_as_float(bits), 8388608.0f + byte_offset);
  // The quotient to twice the precision of f32, rounded once: right for all 1021 sums.
  const float rest_of_reciprocal = __uint_as_float(0xAF7486BEu);
  return __fmaf_rn(y, reciprocal(), __fmul_rn(y, rest_of_reciprocal));
}

/// Where trellis block `block` of stored row `row` lies, in trellis blocks. Orders: rows of trellis
/// blocks (a file's, and what is coded along inputs), blocks of rows (`pack_trellis` of what is
/// coded along outputs), and a file's pairs of trellis blocks.
enum class Order { rows, groups, pairs };

__device__ __forceinline__ long long block_place(Order order, int row, int block, int rows,
                                                 int blocks) {
  switch (order) {
    case Order::rows:
      return static_cast<long long>(row) * blocks + block;
    case Order::groups:
      return static_cast<long long>(block) * rows + row;
    default:
      return (static_cast<long long>(block / 2) * rows + row) * 2 + block % 2;
  }
}

/// The stored matrix [rows, 256 blocks] as T from element `offset` of `out` on, a multiple of 8:
/// each exact value times its row's scale in f32, rounded once. A thread expands 16 weights, 8 at 4
/// bits.
template <class Format, Order order, class T>
__device__ void expand(const unsigned* codes, const float* scales, int rows, int blocks, T* out,
                       long long offset) {
  constexpr int bits = Format::bits;
  constexpr int count = bits == 4 ? 8 : 16;
  constexpr int threads = block_weights / count;  // for a trellis block
  constexpr int words = (count * bits + 31) / 32 + 1;
  const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long at = thread / threads;  // in rows of trellis blocks
  const int within = static_cast<int>(thread % threads);
  if (at >= static_cast<long long>(rows) * blocks) {
    return;
  }
  const int row = static_cast<int>(at / blocks);
  const unsigned* block =
      codes +
      block_place(order, row, static_cast<int>(at % blocks), rows, blocks) * Format::block_words;
  // The last weight of the thread lies first. 48 bits begin in the middle of a word.
  const int first_bit = (threads - 1 - within) * count * bits;
  unsigned string[words];
  for (int i = 0; i < words; ++i) {
    string[i] = __ldg(block + (first_bit / 32 + i) % Format::block_words);
  }
  if constexpr (count * bits % 32 != 0) {
    const int shift = first_bit % 32;
    for (int i = 0; i < words; ++i) {
      string[i] = __funnelshift_r(string[i], i + 1 < words ? string[i + 1] : 0u, shift);
    }
  }
  const float scale = scales[row];
  __align__(16) T values[count];
  for (int i = 0; i < count; ++i) {
    values[i] =
        static_cast<T>(__fmul_rn(exact_value(hash<Format>(string, (count - 1 - i) * bits)), scale));
  }
  T* target = out + offset + at * block_weights + within * count;
  for (int i = 0; i < static_cast<int>(sizeof values / 16); ++i) {
    reinterpret_cast<uint4*>(target)[i] = reinterpret_cast<const uint4*>(values)[i];
  }
}

}  // namespace espalier
