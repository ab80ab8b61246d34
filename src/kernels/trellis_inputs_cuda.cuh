// Products of few rows with weights coded along inputs (axis 1) on CUDA: matrices of codes
// [outputs, activation blocks, words].
#ifndef ESPALIER_TRELLIS_CUDA
#include "kernels/trellis_cuda.cuh"
#endif

namespace espalier {

/// Adds up four numbers over the eight lanes of a trellis block. A lane gets the number of index
/// `kept_row()`, twice the same in neighbouring lanes.
__device__ __forceinline__ int add_eighths(const int (&numbers)[4]) {
  const bool upper = threadIdx.x & 4;
  const bool second = threadIdx.x & 2;
  const int a =
      (upper ? numbers[2] : numbers[0]) + __shfl_xor_sync(~0u, upper ? numbers[0] : numbers[2], 4);
  const int b =
      (upper ? numbers[3] : numbers[1]) + __shfl_xor_sync(~0u, upper ? numbers[1] : numbers[3], 4);
  const int sum = (second ? b : a) + __shfl_xor_sync(~0u, second ? a : b, 2);
  return sum + __shfl_xor_sync(~0u, sum, 1);
}

__device__ __forceinline__ int kept_row() { return (threadIdx.x & 4) / 2 + (threadIdx.x & 2) / 2; }

/// The sum over a trellis block of four outputs, exact and scaled, in the lanes of `kept_row()`.
template <int planes>
__device__ __forceinline__ float block_product(const int (&sums)[4], int center, float scale) {
  if constexpr (planes == 1) {
    return __fmul_rn(__int2float_rn(add_eighths(sums) + center), scale);
  } else {
    // Eight of these sums may exceed 32 bits: upper and lower halves apart.
    int high[4];
    int low[4];
    for (int i = 0; i < 4; ++i) {
      high[i] = sums[i] >> 16;
      low[i] = sums[i] & 0xFFFF;
    }
    const float exact =
        __fmaf_rn(__int2float_rn(add_eighths(high)), 65536.0f, __int2float_rn(add_eighths(low)));
    return __fmul_rn(exact, scale);
  }
}

/// out [outputs] = one row x [inputs] times weights coded along inputs. Thread blocks take
/// neighbouring outputs in groups of four, a warp four activation blocks of a group at a time, a
/// lane an eighth of a trellis block of each of the four outputs: its activations stay in registers
/// from group to group.
template <class Format, int planes, class T>
__device__ void multiply_row_along_inputs(const T* x, const unsigned* codes,
                                          const float* output_scales, int inputs, int outputs,
                                          float* out) {
  constexpr int bits = Format::bits;
  constexpr int quad_words = 4 * Format::block_words;
  using Ring = CodeRing<bits, 4, quad_words, 3>;
  extern __shared__ uint4 shared[];
  const int blocks = inputs / block_weights;
  const int quads = (blocks + 3) / 4;
  const int lane = threadIdx.x % lanes;
  const int warp = threadIdx.x / lanes;
  const int warps = blockDim.x / lanes;
  const auto same = [](int n) { return n; };
  RowBlocks<1, T, decltype(same)> row(x, nullptr, inputs, 4 * quads, same);
  const int all_groups = (outputs + 3) / 4;
  const int first_group = share(all_groups, blockIdx.x, gridDim.x);
  const int groups = share(all_groups, blockIdx.x + 1, gridDim.x) - first_group;
  const int own_outputs = min(4 * groups, outputs - 4 * first_group);

  // Shared memory: rings, integers so that weight j of eighth e of a trellis block meets place
  // 32 e + j, input 255 - 32 e - j; then centers and scales, and products [blocks, 4 groups].
  using Integer = RowInteger<planes>;
  char* rings = reinterpret_cast<char*>(shared);
  auto* integers = reinterpret_cast<typename Integer::type*>(rings + warps * Ring::bytes);
  int* centers = reinterpret_cast<int*>(integers + quads * 4 * block_weights);
  float* scales = reinterpret_cast<float*>(centers + 4 * quads);
  float* products = scales + 4 * quads;

  // Tasks, quad by quad; a warp's are neighbours.
  const int first_task = share(groups * quads, warp, warps);
  const int end_task = share(groups * quads, warp + 1, warps);
  const unsigned row_bytes = blocks * Format::block_words * 4;
  Ring ring(rings + warp * Ring::bytes, row_bytes);
  int quad = static_cast<unsigned>(first_task) / static_cast<unsigned>(max(groups, 1));
  int group = first_task - quad * groups;
  int fetched = first_task;
  int fetched_quad = quad;
  int fetched_group = group;
  const auto fetch = [&] {
    if (fetched >= end_task) {
      ring.end_fetch();
      return;
    }
    const int output = 4 * (first_group + fetched_group);
    const unsigned within = fetched_quad * quad_words * 4;
    ring.fetch(
        reinterpret_cast<const char*>(codes) + static_cast<long long>(output) * row_bytes + within,
        outputs - output, row_bytes - within);
    ++fetched;
    if (++fetched_group == groups) {
      fetched_group = 0;
      ++fetched_quad;
    }
  };
  fetch();
  fetch();
  row.template prepare<planes>(centers, scales, [&](int n, int i, int integer) {
    integers[n * block_weights + 255 - lanes * i - lane] = integer;
  });
  const float first_factor =
      threadIdx.x < own_outputs ? __ldg(output_scales + 4 * first_group + threadIdx.x) : 0.0f;
  __syncthreads();

  unsigned activations[32];
  int loaded = -1;  // whose activations they are
  int sums[4] = {};
  int center = 0;
  float scale = 0;
  float* place = products;
  const bool writes = lane % 2 == 0;
  bool is_block = false;
  const auto finish = [&] {
    const float product = block_product<planes>(sums, center, scale);
    if (writes && is_block) {
      *place = product;
    }
  };
  for (int task = first_task; task < end_task; ++task) {
    const unsigned* words = ring.wait();
    fetch();
    // The sums of the task before: what lanes exchange arrives while they decode the next.
    finish();
    if (loaded != quad) {
      loaded = quad;
      Integer::load(integers + quad * 4 * block_weights + lane * 32, activations);
      const int block = 4 * quad + lane / 8;
      center = centers[block];
      scale = scales[block];
      is_block = block < blocks;
    }
    place = products + (4 * quad + lane / 8) * 4 * groups + 4 * group + kept_row();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned string[bits + 1];
      const unsigned* line = words + i * quad_words;
      read_words<bits>(line + lane * bits, line + ((lane & ~7) | ((lane + 1) & 7)) * bits, string);
      int parts[2] = {};
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        const unsigned weight = hash<Format>(string, j * bits);
        add_product<planes>(parts[j % 2], weight, activations[j]);
      }
      sums[i] = parts[0] + parts[1];
    }
    if (++group == groups) {
      group = 0;
      ++quad;
    }
  }
  finish();
  __syncthreads();
  for (int i = threadIdx.x; i < own_outputs; i += blockDim.x) {
    const int output = 4 * first_group + i;
    const float factor = i < blockDim.x ? first_factor : output_scales[output];
    float sum = 0.0f;
#pragma unroll 16
    for (int block = 0; block < blocks; ++block) {
      sum = __fadd_rn(sum, products[block * 4 * groups + i]);
    }
    out[output] = __fmul_rn(sum, __fmul_rn(factor, reciprocal()));
  }
}

/// Bytes of one activation block and the columns of a tile as the matrix instruction takes them: a
/// lane holds the 64 weights' of its quarter for column lane / 4, each byte four times if there are
/// registers for it.
template <int n_tiles>
struct BlockColumns {
  static constexpr bool repeated = n_tiles == 1;
  unsigned words[n_tiles][repeated ? 64 : 16];

  __device__ void load(const signed char* block, int columns) {
    const int lane = threadIdx.x % lanes;
#pragma unroll
    for (int tile = 0; tile < n_tiles; ++tile) {
      const int column = min(8 * tile + lane / 4, columns - 1);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const uint4 four =
            __ldg(reinterpret_cast<const uint4*>(block) + (step * columns + column) * 4 + lane % 4);
        const unsigned packed[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if constexpr (repeated) {
            const uint4 bytes = repeat_bytes(packed[i]);
            words[tile][16 * step + 4 * i] = bytes.x;
            words[tile][16 * step + 4 * i + 1] = bytes.y;
            words[tile][16 * step + 4 * i + 2] = bytes.z;
            words[tile][16 * step + 4 * i + 3] = bytes.w;
          } else {
            words[tile][4 * step + i] = packed[i];
          }
        }
      }
    }
  }

  __device__ __forceinline__ unsigned get(int tile, int j) const {
    if constexpr (repeated) {
      return words[tile][j];
    } else {
      return __byte_perm(words[tile][j / 4], 0, 0x1111 * (j % 4));
    }
  }
};

/// Sums of 16 outputs, 8 for one of `halves`, and one activation block: a lane decodes a quarter of
/// the trellis blocks of outputs lane / 4 and lane / 4 + 8.
template <class Format, int n_tiles, int halves>
__device__ __forceinline__ void multiply_block(const unsigned* codes,
                                               const BlockColumns<n_tiles>& columns,
                                               int (&total)[n_tiles][4]) {
  constexpr int bits = Format::bits;
  const int lane = threadIdx.x % lanes;
  unsigned words[2][2 * bits + 1];
  for (int half = 0; half < halves; ++half) {
    const unsigned* lines = codes + half * 8 * Format::block_words;
    read_words<2 * bits>(lines + lane * 2 * bits,
                         lines + ((lane & ~3) | ((lane + 1) & 3)) * 2 * bits, words[half]);
  }
  int parts[2][n_tiles][4] = {};
#pragma unroll
  for (int j = 0; j < 64; j += 2) {
    const unsigned a0 = hash<Format>(words[0], j * bits);
    const unsigned a1 = halves == 2 ? hash<Format>(words[1], j * bits) : 0;
    const unsigned a2 = hash<Format>(words[0], (j + 1) * bits);
    const unsigned a3 = halves == 2 ? hash<Format>(words[1], (j + 1) * bits) : 0;
#pragma unroll
    for (int tile = 0; tile < n_tiles; ++tile) {
      multiply_bytes(parts[j / 2 % 2][tile], a0, a1, a2, a3, columns.get(tile, j),
                     columns.get(tile, j + 1));
    }
  }
  for (int tile = 0; tile < n_tiles; ++tile) {
    for (int i = 0; i < 4; ++i) {
      total[tile][i] = parts[0][tile][i] + parts[1][tile][i];
    }
  }
}

/// out [rows, outputs] = rows of `activations` times weights coded along inputs. Grid: x parts of
/// the outputs, in units of 8, y row groups of at most 8 * n_tiles columns. A warp takes one
/// activation block of 16 outputs at a time.
template <class Format, int planes, int n_tiles>
__device__ void multiply_columns_along_inputs(const Activations& activations, const unsigned* codes,
                                              const float* output_scales, int rows, int group_rows,
                                              int inputs, int outputs, float* out) {
  using Ring = CodeRing<Format::bits, 16, Format::block_words, 3>;
  extern __shared__ uint4 shared[];
  const int blocks = inputs / block_weights;
  const int columns = group_rows * planes;
  const int lane = threadIdx.x % lanes;
  const int warp = threadIdx.x / lanes;
  const int warps = blockDim.x / lanes;
  const int octets = (outputs + 7) / 8;
  const int first_output = share(octets, blockIdx.x, gridDim.x) * 8;
  const int end_output = min(share(octets, blockIdx.x + 1, gridDim.x) * 8, outputs);
  const int tiles = (end_output - first_output + 15) / 16;

  char* rings = reinterpret_cast<char*>(shared);
  float* products = reinterpret_cast<float*>(rings + warps * Ring::bytes);
  const int line = 16 * tiles;  // products [blocks, group rows, line]
  const int first_task = share(tiles * blocks, warp, warps);
  const int end_task = share(tiles * blocks, warp + 1, warps);
  const unsigned row_bytes = blocks * Format::block_words * 4;
  Ring ring(rings + warp * Ring::bytes, row_bytes);
  int fetched = first_task;
  int fetched_block = first_task / max(tiles, 1);
  int fetched_tile = first_task - fetched_block * tiles;
  const auto fetch = [&] {
    if (fetched >= end_task) {
      ring.end_fetch();
      return;
    }
    const int output = first_output + 16 * fetched_tile;
    ring.fetch(reinterpret_cast<const char*>(codes + static_cast<long long>(fetched_block) *
                                                         Format::block_words) +
                   static_cast<long long>(output) * row_bytes,
               end_output - output, Format::block_words * 4);
    ++fetched;
    if (++fetched_tile == tiles) {
      fetched_tile = 0;
      ++fetched_block;
    }
  };
  fetch();
  fetch();

  BlockColumns<n_tiles> block_columns;
  int centers[n_tiles][2];  // of columns 2 (lane % 4) and the next of a tile
  float scales[n_tiles][2];
  int block = -1;
  int next_block = first_task / max(tiles, 1);
  int tile = first_task - next_block * tiles;
  for (int task = first_task; task < end_task; ++task) {
    const unsigned* words = ring.wait();
    fetch();
    if (block != next_block) {
      block = next_block;
      const int at = static_cast<int>(blockIdx.y) * blocks + block;
#pragma unroll
      for (int i = 0; i < 2 * n_tiles; ++i) {
        const int column = min(8 * (i / 2) + 2 * (lane % 4) + i % 2, columns - 1);
        centers[i / 2][i % 2] = -byte_offset * __ldg(activations.sums + at * columns + column);
        scales[i / 2][i % 2] = __ldg(activations.scales + at * group_rows + column / planes);
      }
      block_columns.load(activations.bytes + static_cast<long long>(at) * columns * block_weights,
                         columns);
    }
    int total[n_tiles][4];
    const bool is_whole = first_output + 16 * tile + 8 < end_output;
    if (is_whole) {
      multiply_block<Format, n_tiles, 2>(words, block_columns, total);
    } else {
      multiply_block<Format, n_tiles, 1>(words, block_columns, total);
    }
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
      for (int i = 0; i < 4; i += planes) {
        // Element i: output lane / 4 + 8 (i / 2), column 2 (lane % 4) + i % 2 of the tile.
        const int column = 8 * n + 2 * (lane % 4) + i % 2;
        if (column < columns) {
          products[(block * group_rows + column / planes) * line + 16 * tile + lane / 4 +
                   8 * (i / 2)] =
              scaled_sum<planes>(total[n][i] + centers[n][i % 2],
                                 planes == 2 ? total[n][i | 1] + centers[n][1] : 0,
                                 scales[n][i % 2]);
        }
      }
    }
    if (++tile == tiles) {
      tile = 0;
      ++next_block;
    }
  }
  __syncthreads();
  const int own_outputs = end_output - first_output;
  for (int i = threadIdx.x; i < group_rows * line; i += blockDim.x) {
    const int row = blockIdx.y * group_rows + i / line;
    const int within = i % line;
    if (row >= rows || within >= own_outputs) {
      continue;
    }
    const float factor = __fmul_rn(output_scales[first_output + within], reciprocal());
    float sum = 0.0f;
#pragma unroll 8
    for (int b = 0; b < blocks; ++b) {
      sum = __fadd_rn(sum, products[b * group_rows * line + i]);
    }
    out[static_cast<long long>(row) * outputs + first_output + within] = __fmul_rn(sum, factor);
  }
}

}  // namespace espalier
