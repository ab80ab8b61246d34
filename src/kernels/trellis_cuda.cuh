// Products with trellis-coded weights on CUDA. This text is compiled at run time: it holds device
// functions alone, and whoever launches them writes the kernel around one call. Nothing is
// included: 16-bit floats are types of the caller.
//
// Numbers (the integer contract): activations become integers per activation block of 256 inputs,
// the four bytes of a state's hash stay as they are and meet the activation's byte, repeated four
// times, in an int8 matrix instruction, so each sum over an activation block is exact; the sums of
// activation blocks are scaled and added in f32 in the order of the inputs. Every f32 operation is
// an intrinsic that the compiler does not contract.
//
// Columns: what the matrix instruction multiplies with at once. An int8 row of activations is one
// column, a 15-bit row two: its high and its low bytes (q = 256 * high + low).
#ifndef ESPALIER_TRELLIS_CUDA
#define ESPALIER_TRELLIS_CUDA

namespace espalier {

/// `code`: 0 for 1mad, 1 for mul1.
template <int bits_, int state_bits_, int code>
struct Trellis {
  static constexpr int bits = bits_;
  static constexpr int state_bits = state_bits_;
  static constexpr unsigned mask = (1u << state_bits) - 1;
  static constexpr unsigned multiplier = code == 0 ? 34038481u : 0x83DCD12Du;
  static constexpr unsigned addend = code == 0 ? 76625530u : 0u;
  static constexpr int block_words = 8 * bits;
};

constexpr int block_weights = 256;  // of a trellis block, and inputs of an activation block
constexpr int lanes = 32;
constexpr int byte_offset = 510;  // what the byte sums are centered by

__device__ __forceinline__ float reciprocal() { return __uint_as_float(0x3BDDB447u); }

/// The 32 bits from bit `at` on of a string of words; `at` is known when this is compiled.
template <int count>
__device__ __forceinline__ unsigned window(const unsigned (&words)[count], int at) {
  const int word = at >> 5;
  const int shift = at & 31;
  if (shift == 0) {
    return words[word];
  }
  return word + 1 < count ? __funnelshift_r(words[word], words[word + 1], shift)
                          : words[word] >> shift;
}

/// The hash of the state at bit `at`.
template <class Format, int count>
__device__ __forceinline__ unsigned hash(const unsigned (&words)[count], int at) {
  // A state that ends a word needs no mask: the compiler sees it if the shift takes one word.
  const unsigned state =
      (at & 31) + Format::state_bits <= 32 ? words[at >> 5] >> (at & 31) : window(words, at);
  return (state & Format::mask) * Format::multiplier + Format::addend;
}

/// sums[16 x 8] += weights[16 x 32 bytes] * activations[32 bytes x 8].
__device__ __forceinline__ void multiply_bytes(int (&sums)[4], unsigned a0, unsigned a1,
                                               unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// sum += the bytes of `weights` times those of `activations`, which have signs.
__device__ __forceinline__ void add_bytes(int& sum, unsigned weights, unsigned activations) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weights), "r"(activations));
}

/// Loads that stay where they are written, ahead of their use: the compiler would move plain ones
/// down to it.
template <int words>
__device__ __forceinline__ void load_words(const unsigned* from, unsigned* to) {
  if constexpr (words % 4 == 0) {
    for (int i = 0; i < words; i += 4) {
      asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(to[i]), "=r"(to[i + 1]), "=r"(to[i + 2]), "=r"(to[i + 3])
                   : "l"(from + i));
    }
  } else if constexpr (words % 2 == 0) {
    for (int i = 0; i < words; i += 2) {
      asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];"
                   : "=r"(to[i]), "=r"(to[i + 1])
                   : "l"(from + i));
    }
  } else {
    for (int i = 0; i < words; ++i) {
      asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(to[i]) : "l"(from + i));
    }
  }
}

/// Asks for a cache line to be brought into L2.
__device__ __forceinline__ void prefetch(const unsigned* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

/// Activations as integers, in the order of the matrix instruction:
///   bytes   [row groups, activation blocks, 4, columns of a group, 4 quarters, 16]: byte i of
///           quarter q and step s meets weight j = 16 s + i of what lane quarter q decodes: input
///           255 - 64 q - j of the activation block where weights are coded along inputs (axis 1),
///           8 (j / 2) + q + 4 (j % 2) where they are coded along outputs (axis 0)
///   sums    [row groups, activation blocks, columns of a group]: sum of a column's integers
///   scales  [row groups, activation blocks, rows of a group]
/// 255 - 64 q - j also orders the weights of a quarter of a trellis block: its words hold the last
/// weight first.
struct Activations {
  const signed char* bytes;
  const int* sums;
  const float* scales;
};

template <int axis>
__device__ __forceinline__ int input_of(int quarter, int j) {
  return axis == 1 ? 255 - 64 * quarter - j : 8 * (j >> 1) + quarter + 4 * (j & 1);
}

/// A warp makes integers of an activation block, eight values a lane; returns its scale. Plane 0 of
/// two holds the high bytes, the last plane the low ones.
template <int planes>
__device__ float quantize(const float (&values)[8], int (&parts)[planes][8]) {
  float largest = 0.0f;
  for (int i = 0; i < 8; ++i) {
    largest = fmaxf(largest, fabsf(values[i]));
  }
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  }
  constexpr float limit = planes == 2 ? 32512.0f : 127.0f;
  const float scale = __fdiv_rn(largest, limit);
  for (int i = 0; i < 8; ++i) {
    int q = 0;
    if (scale > 0.0f) {
      q = __float2int_rn(fmaxf(fminf(__fdiv_rn(values[i], scale), limit), -limit));
    }
    if constexpr (planes == 2) {
      parts[1][i] = static_cast<signed char>(q & 0xFF);
      parts[0][i] = (q - parts[1][i]) / 256;
    } else {
      parts[0][i] = q;
    }
  }
  return scale > 0.0f ? scale : 0.0f;
}

/// One element of x [rows, inputs], times its input's scale for axis 0; zero past the last.
template <int axis, class T>
__device__ __forceinline__ float activation(const T* x, const float* input_scales, int row,
                                            int input, int inputs) {
  if (input >= inputs) {
    return 0.0f;
  }
  const auto value = static_cast<float>(x[static_cast<long long>(row) * inputs + input]);
  return axis == 0 ? __fmul_rn(value, input_scales[input]) : value;
}

/// Makes `Activations`: one warp for each row and activation block. x [rows, inputs];
/// `input_scales` [inputs] for axis 0. `planes`: 1 for int8, 2 for 15 bits.
template <int axis, int planes, class T>
__device__ void prepare(const T* x, const float* input_scales, int rows, int inputs, int group_rows,
                        signed char* bytes, int* sums, float* scales) {
  const int lane = threadIdx.x % lanes;
  const int blocks = (inputs + block_weights - 1) / block_weights;
  const int task = blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
  if (task >= rows * blocks) {
    return;
  }
  const int row = task / blocks;
  const int block = task % blocks;
  const int quarter = lane / 8;
  const int first_j = lane % 8 * 8;
  float values[8];
  for (int i = 0; i < 8; ++i) {
    values[i] = activation<axis>(
        x, input_scales, row, block * block_weights + input_of<axis>(quarter, first_j + i), inputs);
  }
  int parts[planes][8];
  const float scale = quantize<planes>(values, parts);
  const int within = row % group_rows;
  const int columns = group_rows * planes;
  const long long at = static_cast<long long>(row / group_rows) * blocks + block;
  for (int plane = 0; plane < planes; ++plane) {
    unsigned packed[2] = {};
    int total = 0;
    for (int i = 0; i < 8; ++i) {
      packed[i / 4] |= (parts[plane][i] & 0xFF) << 8 * (i % 4);
      total += parts[plane][i];
    }
    const int column = within * planes + plane;
    const long long place =
        ((at * 4 + first_j / 16) * columns + column) * 64 + quarter * 16 + first_j % 16;
    *reinterpret_cast<uint2*>(bytes + place) = make_uint2(packed[0], packed[1]);
    const int sum = __reduce_add_sync(~0u, total);
    if (lane == 0) {
      sums[at * columns + column] = sum;
    }
  }
  if (lane == 0) {
    scales[at * group_rows + within] = scale;
  }
}

/// The exact sum of an activation block times its scale, from the matrix instruction's sums of its
/// one or two columns and what these are centered by.
template <int planes>
__device__ __forceinline__ float scaled_sum(int first, int second, float scale) {
  const float exact = planes == 1
                          ? __int2float_rn(first)
                          : __fmaf_rn(__int2float_rn(first), 256.0f, __int2float_rn(second));
  return __fmul_rn(exact, scale);
}

__device__ __forceinline__ unsigned dynamic_shared_bytes() {
  unsigned bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void wait_for(unsigned barrier, unsigned parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void copy_to_shared(unsigned to, const void* from, unsigned bytes,
                                               unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Begins to bring the activations of each block to shared memory, which `arrived[block]` tells.
__device__ __forceinline__ void fetch_activations(const signed char* from, int blocks, int columns,
                                                  uint4* to, unsigned long long* arrived) {
  const unsigned bytes = columns * block_weights;
  for (int block = threadIdx.x; block < blocks; block += blockDim.x) {
    const unsigned barrier = shared_address(arrived + block);
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], 1; fence.proxy.async.shared::cta; "
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
        "r"(bytes)
        : "memory");
    copy_to_shared(shared_address(to + block * columns * 16),
                   from + static_cast<long long>(block) * bytes, bytes, barrier);
  }
}
#endif

/// Each byte of a word four times.
__device__ __forceinline__ uint4 repeat_bytes(unsigned word) {
  return make_uint4(__byte_perm(word, 0, 0x0000), __byte_perm(word, 0, 0x1111),
                    __byte_perm(word, 0, 0x2222), __byte_perm(word, 0, 0x3333));
}

/// Bytes of activations in shared memory as `multiply_bytes` takes them. `repeated`: one column of
/// each plane, every byte four times already: [block, 16 steps, planes, 4 quarters, 4 words].
template <int planes, bool repeated>
__device__ void load_activations(const signed char* from, int blocks, int columns, uint4* to) {
  if constexpr (repeated) {
    const unsigned* source = reinterpret_cast<const unsigned*>(from);
    for (int i = threadIdx.x; i < blocks * planes * 64; i += blockDim.x) {
      const int within = i % (4 * planes);  // plane and quarter
      const int step = i / (4 * planes);    // of four weights
      const unsigned word = __ldg(source + (step / 4 * 4 * planes + within) * 4 + step % 4);
      to[i] = repeat_bytes(word);
    }
  } else {
    for (int i = threadIdx.x; i < blocks * columns * 16; i += blockDim.x) {
      to[i] = __ldg(reinterpret_cast<const uint4*>(from) + i);
    }
  }
}

/// What exact sums of activation blocks are centered and scaled by.
__device__ __forceinline__ void load_scales(const Activations& activations, long long first_block,
                                            int blocks, int columns, int group_rows, int* centers,
                                            float* scales) {
  for (int i = threadIdx.x; i < blocks * columns; i += blockDim.x) {
    centers[i] = -byte_offset * activations.sums[first_block * columns + i];
  }
  for (int i = threadIdx.x; i < blocks * group_rows; i += blockDim.x) {
    scales[i] = activations.scales[first_block * group_rows + i];
  }
}

/// How columns meet the hashes: one by one in an instruction for four bytes (for one column this
/// takes less of the processor than a matrix instruction), one column of each plane in all columns
/// of a matrix instruction, or columns of their own.
enum class Columns { single, repeated, own };

/// Shared memory of `multiply_along_inputs`.
struct FewRows {
  const uint4* activations;
  const unsigned long long* arrived;  // a barrier for each block of columns of their own
  const int* centers;                 // [blocks, columns]
  const float* scales;                // [blocks, rows of a group]
  int columns;
  int group_rows;
};

/// Products of 16 outputs and one activation block: products [rows of a group, 16]. A lane decodes
/// a quarter of the trellis blocks of outputs lane / 4 and lane / 4 + 8. `halves`: 1 for the first
/// 8 outputs alone.
template <class Format, int planes, int n_tiles, Columns kind, int halves>
__device__ __forceinline__ void multiply_unit(const unsigned (&codes)[2][2 * Format::bits],
                                              const FewRows& x, int block, float* products) {
  constexpr int bits = Format::bits;
  constexpr int lane_words = 2 * bits;
  const int lane = threadIdx.x % lanes;
  const int row_lane = lane / 4;
  const int quarter = lane % 4;
  unsigned words[2][lane_words + 1];
  for (int half = 0; half < halves; ++half) {
    for (int i = 0; i < lane_words; ++i) {
      words[half][i] = codes[half][i];
    }
    words[half][lane_words] = __shfl_sync(~0u, codes[half][0], (lane & ~3) | ((lane + 1) & 3));
  }
  int total[n_tiles][4] = {};
  int column[n_tiles];
  for (int tile = 0; tile < n_tiles; ++tile) {
    column[tile] =
        kind == Columns::own ? min(8 * tile + row_lane, x.columns - 1) : row_lane % planes;
  }
  uint4 packed[n_tiles];
#if __CUDA_ARCH__ >= 900
  if constexpr (kind == Columns::own) {
    wait_for(shared_address(x.arrived + block), 0);
  }
#endif
#pragma unroll
  for (int step = 0; step < 16; ++step) {
    unsigned weights[4][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights[i][0] = hash<Format>(words[0], (4 * step + i) * bits);
      weights[i][1] = halves == 2 ? hash<Format>(words[1], (4 * step + i) * bits) : 0;
    }
#pragma unroll
    for (int tile = 0; tile < n_tiles; ++tile) {
      uint4 four;
      if constexpr (kind == Columns::own) {
        if (step % 4 == 0) {
          packed[tile] =
              x.activations[((block * 4 + step / 4) * x.columns + column[tile]) * 4 + quarter];
        }
        four = repeat_bytes(step % 4 == 0   ? packed[tile].x
                            : step % 4 == 1 ? packed[tile].y
                            : step % 4 == 2 ? packed[tile].z
                                            : packed[tile].w);
      } else {
        four = x.activations[((block * 16 + step) * planes + column[0]) * 4 + quarter];
      }
      if constexpr (kind == Columns::single) {
        const unsigned bytes[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          add_bytes(total[0][i % 2], weights[i][0], bytes[i]);
          if constexpr (halves == 2) {
            add_bytes(total[0][2 + i % 2], weights[i][1], bytes[i]);
          }
        }
      } else {
        multiply_bytes(total[tile], weights[0][0], weights[0][1], weights[1][0], weights[1][1],
                       four.x, four.y);
        multiply_bytes(total[tile], weights[2][0], weights[2][1], weights[3][0], weights[3][1],
                       four.z, four.w);
      }
    }
  }
  if constexpr (kind == Columns::single) {
    for (int half = 0; half < halves; ++half) {
      int& sum = total[0][2 * half];
      sum += total[0][2 * half + 1];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
    }
  }
  for (int tile = 0; tile < n_tiles; ++tile) {
    for (int i = 0; i < 2 * halves; i += planes) {
      // Element i: output row_lane + 8 (i / 2), column 2 quarter + i % 2 of the tile.
      const int at = 8 * tile + 2 * quarter + i % 2;
      if (at < x.columns) {
        const int row = at / planes;
        const int* center = x.centers + block * x.columns + at;
        products[row * 16 + row_lane + 8 * (i / 2)] = scaled_sum<planes>(
            total[tile][i] + center[0], planes == 2 ? total[tile][i | 1] + center[1] : 0,
            x.scales[block * x.group_rows + row]);
      }
    }
  }
}

/// Products of few rows with weights coded along inputs. Grid: x parts of the outputs, in units of
/// 8, y row groups of at most 8 * n_tiles columns. A warp takes one activation block of a tile of
/// 16 outputs at a time. out [rows, outputs]. Shared memory: activations, then centering sums and
/// scales, then products of as many tiles as fit.
template <class Format, int planes, int n_tiles, Columns kind>
__device__ void multiply_along_inputs(const Activations& activations, const unsigned* codes,
                                      const float* output_scales, int rows, int group_rows,
                                      int inputs, int outputs, float* out) {
  constexpr int lane_words = 2 * Format::bits;
  extern __shared__ uint4 shared[];
  const int blocks = inputs / block_weights;
  const int columns = group_rows * planes;
  const int lane = threadIdx.x % lanes;
  const int warp = threadIdx.x / lanes;
  const int warps = blockDim.x / lanes;

  const int octets = (outputs + 7) / 8;
  const int first_output =
      static_cast<int>(blockIdx.x * static_cast<long long>(octets) / gridDim.x) * 8;
  const int end_output =
      min(static_cast<int>((blockIdx.x + 1ll) * octets / gridDim.x) * 8, outputs);
  const long long row_words = static_cast<long long>(blocks) * Format::block_words;

  auto* arrived = reinterpret_cast<unsigned long long*>(
      shared + blocks * columns * 16 * (kind == Columns::own ? 1 : 4));
  int* centers = reinterpret_cast<int*>(arrived + blocks);
  float* scales = reinterpret_cast<float*>(centers + blocks * columns);
  float* products = scales + blocks * group_rows;
  const FewRows x{shared, arrived, centers, scales, columns, group_rows};
  const int room =
      (dynamic_shared_bytes() - (shared_address(products) - shared_address(shared))) / 4;
  const int unit_products = 16 * group_rows;
  const int round_tiles = room / (blocks * unit_products);
  const int own_tiles = (end_output - first_output + 15) / 16;

  // What is loaded next, in a round's order of tiles and their blocks.
  const int tiles_apart = warps / blocks;
  const int blocks_apart = warps % blocks;
  int next_output = 0;
  int next_block = 0;
  struct Unit {
    unsigned codes[2][lane_words];
    int block;
    bool is_whole;  // 16 outputs, else 8
  };
  const auto load = [&](Unit& unit) {
    const unsigned* from = codes + next_output * row_words + lane / 4 * row_words +
                           next_block * Format::block_words + lane % 4 * lane_words;
    unit.block = next_block;
    unit.is_whole = next_output + 8 < end_output;
    // Past the last output lies another's code, or for the last of all its own again.
    const int beyond = max(next_output + lane / 4 - (outputs - 1), 0);
    load_words<lane_words>(from - beyond * row_words, unit.codes[0]);
    if (unit.is_whole) {
      const int upper_beyond = max(next_output + 8 + lane / 4 - (outputs - 1), 0);
      load_words<lane_words>(from + (8 - upper_beyond) * row_words, unit.codes[1]);
    }
    next_output += 16 * tiles_apart;
    next_block += blocks_apart;
    if (next_block >= blocks) {
      next_block -= blocks;
      next_output += 16;
    }
    // What is loaded a unit after this: codes reach no further ahead than the registers.
    const bool wraps = next_block + blocks_apart >= blocks;
    const int far_output = next_output + 16 * (tiles_apart + wraps) + lane % 16;
    const int far_block = next_block + blocks_apart - (wraps ? blocks : 0);
    if (far_output < end_output) {
      prefetch(codes + far_output * row_words + far_block * Format::block_words +
               lane / 16 * (Format::block_words - 1));
    }
  };
  const auto multiply = [&](const Unit& unit, float* to) {
    if (unit.is_whole) {
      multiply_unit<Format, planes, n_tiles, kind, 2>(unit.codes, x, unit.block, to);
    } else {
      multiply_unit<Format, planes, n_tiles, kind, 1>(unit.codes, x, unit.block, to);
    }
  };

  for (int first_tile = 0; first_tile < own_tiles; first_tile += round_tiles) {
    const int units = min(round_tiles, own_tiles - first_tile) * blocks;
    const int round_output = first_output + 16 * first_tile;
    // Two units in turn: copying one to the other would wait for its loads.
    Unit first;
    Unit second;
    next_output = round_output + warp / blocks * 16;
    next_block = warp % blocks;
    if (warp < units) {
      load(first);
    }
    if (first_tile == 0) {
      const long long group = static_cast<long long>(blockIdx.y) * blocks;
      const signed char* bytes = activations.bytes + group * columns * 256;
#if __CUDA_ARCH__ >= 900
      if constexpr (kind == Columns::own) {
        fetch_activations(bytes, blocks, columns, shared, arrived);
      } else {
        load_activations<planes, true>(bytes, blocks, columns, shared);
      }
#else
      load_activations<planes, kind != Columns::own>(bytes, blocks, columns, shared);
#endif
      load_scales(activations, group, blocks, columns, group_rows, centers, scales);
    }
    __syncthreads();
    for (int unit = warp; unit < units; unit += 2 * warps) {
      const bool has_second = unit + warps < units;
      if (has_second) {
        load(second);
      }
      multiply(first, products + unit * unit_products);
      if (unit + 2 * warps < units) {
        load(first);
      }
      if (has_second) {
        multiply(second, products + (unit + warps) * unit_products);
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < units / blocks * unit_products; i += blockDim.x) {
      const int tile = i / unit_products;
      const int within = i % unit_products;
      const int row = blockIdx.y * group_rows + within / 16;
      const int output = round_output + tile * 16 + within % 16;
      if (row >= rows || output >= end_output) {
        continue;
      }
      const float* from = products + tile * blocks * unit_products + within;
      float sum = 0.0f;
#pragma unroll 8
      for (int block = 0; block < blocks; ++block) {
        sum = __fadd_rn(sum, from[block * unit_products]);
      }
      out[static_cast<long long>(row) * outputs + output] =
          __fmul_rn(sum, __fmul_rn(output_scales[output], reciprocal()));
    }
    if (first_tile + round_tiles < own_tiles) {
      __syncthreads();
    }
  }
}

/// Where the sums of weight j of the eight eighths of a trellis block lie; columns and weights are
/// apart by numbers that spread them over the banks.
__device__ __forceinline__ int sum_place(int j) { return 8 * j + j / 8 * 8; }
constexpr int column_stride = block_weights + 32 + 4;

/// Adds the sums of a lane's 32 weights to those of the three other lanes that decoded the same
/// weights of other inputs, and all to `target`.
__device__ __forceinline__ void add_quarters(int (&total)[16][2], int* target) {
  const int quarter = threadIdx.x % 4;
  // Each lane of a pair keeps half of the weights, each of four a quarter.
  int half[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int low = total[i / 2][i % 2];
    const int high = total[8 + i / 2][i % 2];
    half[i] = (quarter & 2 ? high : low) + __shfl_xor_sync(~0u, quarter & 2 ? low : high, 2);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int sum = (quarter & 1 ? half[8 + i] : half[i]) +
                    __shfl_xor_sync(~0u, quarter & 1 ? half[i] : half[8 + i], 1);
    atomicAdd(target + sum_place(8 * quarter + i), sum);
  }
}

/// Products of few rows with weights coded along outputs, as products per activation block:
/// partial [activation blocks, rows, outputs], to be added by `add_products`. Grid: x units of one
/// output group of 256 and one activation block in turn, y row groups of at most 8 columns. A warp
/// takes 64 inputs of a unit at a time, a lane an eighth of the trellis blocks of two inputs in 8.
/// Shared memory: of as many units as fit, centering sums and scales, then sums.
template <class Format, int planes, Columns kind>
__device__ void multiply_along_outputs(const Activations& activations, const unsigned* codes,
                                       int rows, int group_rows, int inputs, int outputs,
                                       float* partial) {
  constexpr int bits = Format::bits;
  constexpr int parts = 4;  // of a unit's inputs
  constexpr int steps = block_weights / 8 / parts;
  constexpr int ahead = 2;
  extern __shared__ uint4 shared[];
  const int blocks = (inputs + block_weights - 1) / block_weights;
  const int columns = group_rows * planes;
  const int all_units = outputs / block_weights * blocks;
  const int first_row = blockIdx.y * group_rows;
  const int lane = threadIdx.x % lanes;
  const int warp = threadIdx.x / lanes;
  const int warps = blockDim.x / lanes;
  const int eighth = lane / 4;
  const int quarter = lane % 4;
  const int column = min(eighth, columns - 1);
  const long long group = blockIdx.y;

  const int unit_sums = column_stride * columns;
  const int round_units = dynamic_shared_bytes() / 4 / (unit_sums + columns + group_rows);
  int* centers = reinterpret_cast<int*>(shared);
  float* scales = reinterpret_cast<float*>(centers + round_units * columns);
  int* sums = reinterpret_cast<int*>(scales + round_units * group_rows);
  const uint4* packed_bytes =
      reinterpret_cast<const uint4*>(activations.bytes) + group * blocks * columns * 16;
  const int own_units = (all_units - static_cast<int>(blockIdx.x) + gridDim.x - 1) / gridDim.x;

  for (int first_unit = 0; first_unit < own_units; first_unit += round_units) {
    const int units = min(round_units, own_units - first_unit);
    for (int i = threadIdx.x; i < units * unit_sums; i += blockDim.x) {
      sums[i] = 0;
    }
    unsigned queue[ahead][2][bits];
    // Activations and the first code of this lane, and how many inputs lie behind that.
    struct Task {
      uint4 activations;
      const unsigned* codes;
      int inputs_left;
    };
    const auto find = [&](int task) {
      const int unit = blockIdx.x + (first_unit + task / parts) * gridDim.x;
      const int group_of_outputs = unit / blocks;
      const int block = unit - group_of_outputs * blocks;
      const int input = block * block_weights + task % parts * steps * 8 + quarter;
      return Task{
          __ldg(packed_bytes + ((block * parts + task % parts) * columns + column) * 4 + quarter),
          codes +
              (static_cast<long long>(group_of_outputs) * inputs + input) * Format::block_words +
              eighth * bits,
          inputs - 1 - input};
    };
    const auto load = [&](const Task& task, int step) {
      for (int half = 0; half < 2; ++half) {
        load_words<bits>(
            task.codes + min(8 * step + 4 * half, task.inputs_left) * Format::block_words,
            queue[step % ahead][half]);
      }
    };
    Task current{};
    if (warp < units * parts) {
      current = find(warp);
      for (int step = 0; step < ahead; ++step) {
        load(current, step);
      }
    }
    for (int i = threadIdx.x; i < units * columns; i += blockDim.x) {
      const int unit = blockIdx.x + (first_unit + i / columns) * gridDim.x;
      const long long block = group * blocks + unit % blocks;
      centers[i] = -byte_offset * activations.sums[block * columns + i % columns];
      if (i % planes == 0) {
        scales[i / planes] = activations.scales[block * group_rows + i % columns / planes];
      }
    }
    __syncthreads();
    for (int task = warp; task < units * parts; task += warps) {
      Task next{};
      if (task + warps < units * parts) {
        next = find(task + warps);
      }
      const uint4 packed = current.activations;
      const unsigned bytes[4] = {packed.x, packed.y, packed.z, packed.w};
      // Of weights 2 tile and 2 tile + 1 of the lane's eighth.
      int total[16][kind == Columns::single ? 2 : 4] = {};
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        unsigned words[2][bits + 1];
        for (int half = 0; half < 2; ++half) {
          for (int i = 0; i < bits; ++i) {
            words[half][i] = queue[step % ahead][half][i];
          }
          words[half][bits] = __shfl_sync(~0u, words[half][0], (lane + 4) & 31);
        }
        if (step + ahead < steps) {
          load(current, step + ahead);
        } else if (task + warps < units * parts) {
          load(next, step + ahead - steps);
        }
        const unsigned b0 = __byte_perm(bytes[step / 2], 0, step % 2 == 0 ? 0x0000 : 0x2222);
        const unsigned b1 = __byte_perm(bytes[step / 2], 0, step % 2 == 0 ? 0x1111 : 0x3333);
#pragma unroll
        for (int tile = 0; tile < 16; ++tile) {
          const unsigned a0 = hash<Format>(words[0], 2 * tile * bits);
          const unsigned a1 = hash<Format>(words[0], (2 * tile + 1) * bits);
          const unsigned a2 = hash<Format>(words[1], 2 * tile * bits);
          const unsigned a3 = hash<Format>(words[1], (2 * tile + 1) * bits);
          if constexpr (kind == Columns::single) {
            add_bytes(total[tile][0], a0, b0);
            add_bytes(total[tile][1], a1, b0);
            add_bytes(total[tile][0], a2, b1);
            add_bytes(total[tile][1], a3, b1);
          } else {
            multiply_bytes(total[tile], a0, a1, a2, a3, b0, b1);
          }
        }
      }
      current = next;
      int* target = sums + task / parts * unit_sums + eighth;
      if constexpr (kind == Columns::single) {
        add_quarters(total, target);
      } else {
        for (int second = 0; second < 2; ++second) {
          const int at = 2 * quarter + second;
          if (at < columns) {
#pragma unroll
            for (int j = 0; j < lanes; ++j) {
              atomicAdd(target + at * column_stride + sum_place(j),
                        second == 0 ? total[j / 2][j % 2 * 2] : total[j / 2][j % 2 * 2 + 1]);
            }
          }
        }
      }
    }
    __syncthreads();
    // A unit for each 256 threads at a time.
    const int from_end = 255 - static_cast<int>(threadIdx.x) % block_weights;
    const int at = sum_place(from_end % lanes) + from_end / lanes;
    const long long row_outputs = outputs;
    for (int local = threadIdx.x / block_weights; local < units;
         local += blockDim.x / block_weights) {
      const int unit = blockIdx.x + (first_unit + local) * gridDim.x;
      const int group_of_outputs = unit / blocks;
      const int block = unit - group_of_outputs * blocks;
      const int* from = sums + local * unit_sums + at;
      const int* center = centers + local * columns;
      const float* scale = scales + local * group_rows;
      float* to = partial + (static_cast<long long>(block) * rows + first_row) * row_outputs +
                  group_of_outputs * block_weights + block_weights - 1 - from_end;
      const int count = min(group_rows, rows - first_row);
#pragma unroll 4
      for (int row = 0; row < count; ++row) {
        to[row * row_outputs] = scaled_sum<planes>(
            from[row * planes * column_stride] + center[row * planes],
            planes == 2 ? from[(row * planes + 1) * column_stride] + center[row * planes + 1] : 0,
            scale[row]);
      }
    }
    __syncthreads();
  }
}

/// out [count] = the sum of partial [activation blocks, count] in their order, times 1/deviation.
__device__ __forceinline__ void add_products(const float* partial, int blocks, long long count,
                                             float* out) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) {
    return;
  }
  float sum = 0.0f;
#pragma unroll 8
  for (int block = 0; block < blocks; ++block) {
    sum = __fadd_rn(sum, __ldg(partial + block * count + i));
  }
  out[i] = __fmul_rn(sum, reciprocal());
}

}  // namespace espalier

#endif  // ESPALIER_TRELLIS_CUDA
