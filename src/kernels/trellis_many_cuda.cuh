// Products of many rows with trellis-coded weights on CUDA, for processors with warpgroup matrix
// instructions (compute capability 9.0, compiled for sm_90a). A thread block decodes weights into
// shared memory as f16 or bf16 while the matrix units work on the ones before.
//
// Integer contract: a centered byte sum (-510 .. 510) and an activation's byte are exact in f16,
// and so is every sum of their products over an activation block in f32 (256 * 510 * 128 < 2^24),
// whatever its order. The sums of activation blocks are scaled and added as everywhere.
// Reference contract: weights are exact values times scales rounded to bf16, sums are f32.
#ifndef ESPALIER_TRELLIS_CUDA
#include "kernels/trellis_cuda.cuh"
#endif

namespace espalier {

enum class Numeric { reference, int8, int15 };

constexpr int tile_outputs = 128;
constexpr int chunk_inputs = 64;  // decoded at a time: 128 bytes, one swizzle pattern
constexpr int chunks_of_block = block_weights / chunk_inputs;
constexpr int tile_stages = 4;     // chunks in flight
constexpr int role_threads = 256;  // that decode, and that multiply
constexpr int tile_threads = 2 * role_threads;

/// Activations for `multiply_tile`: T [column tiles, chunks, columns, 64] with the 16-byte pieces
/// of a column's 128 bytes swizzled; scales [column tiles, activation blocks, rows of a tile]. One
/// warp for each row, padded to whole tiles, and activation block.
template <int axis, Numeric numeric, int columns, class Input, class T>
__device__ void prepare_tiles(const Input* x, const float* input_scales, int rows, int inputs,
                              T* tiles, float* scales) {
  constexpr int planes = numeric == Numeric::int15 ? 2 : 1;
  constexpr int tile_rows = columns / planes;
  const int lane = threadIdx.x % lanes;
  const int blocks = (inputs + block_weights - 1) / block_weights;
  const int task = blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
  const int row = task / blocks;
  const int block = task % blocks;
  if (row >= (rows + tile_rows - 1) / tile_rows * tile_rows) {
    return;
  }
  float values[8] = {};
  for (int i = 0; i < 8 && row < rows; ++i) {
    // The reference scales weights, never activations.
    values[i] = activation < numeric == Numeric::reference
                    ? 1
                    : axis > (x, input_scales, row, block * block_weights + 8 * lane + i, inputs);
  }
  __align__(16) T pieces[planes][8];
  if constexpr (numeric == Numeric::reference) {
    for (int i = 0; i < 8; ++i) {
      pieces[0][i] = static_cast<T>(values[i]);
    }
  } else {
    int parts[planes][8];
    const float scale = quantize<planes>(values, parts);
    for (int plane = 0; plane < planes; ++plane) {
      for (int i = 0; i < 8; ++i) {
        pieces[plane][i] = static_cast<T>(static_cast<float>(parts[plane][i]));
      }
    }
    if (lane == 0) {
      scales[(row / tile_rows * blocks + block) * tile_rows + row % tile_rows] = scale;
    }
  }
  const long long chunk =
      (static_cast<long long>(row / tile_rows) * blocks + block) * chunks_of_block + lane / 8;
  for (int plane = 0; plane < planes; ++plane) {
    const int column = row % tile_rows * planes + plane;
    auto* target = reinterpret_cast<uint4*>(tiles + (chunk * columns + column) * chunk_inputs);
    target[(lane ^ column) & 7] = *reinterpret_cast<const uint4*>(pieces[plane]);
  }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A matrix in shared memory for the matrix unit: 128-byte lines swizzled, 8 lines to a pattern.
__device__ __forceinline__ unsigned long long matrix_descriptor(unsigned address) {
  constexpr unsigned long long swizzle_128 = 1ull << 62;
  constexpr unsigned long long pattern_bytes = 1024ull >> 4 << 32;
  constexpr unsigned long long unused = 1ull << 16;
  return swizzle_128 | pattern_bytes | unused | ((address & 0x3FFFFu) >> 4);
}

// Operands of the matrix instruction: sums in groups of eight, numbered from 0.
#define SUMS_1 "%0,%1,%2,%3,%4,%5,%6,%7"
#define SUMS_2 SUMS_1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define SUMS_3 SUMS_2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define SUMS_4 SUMS_3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define SUMS_5 SUMS_4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define SUMS_6 SUMS_5 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define SUMS_7 SUMS_6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define SUMS_8 SUMS_7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define SUMS_9 SUMS_8 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define SUMS_10 SUMS_9 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define SUMS_11 SUMS_10 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define SUMS_12 SUMS_11 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define EIGHT(i)                                                                                  \
  "+f"(sums[8 * (i)]), "+f"(sums[8 * (i) + 1]), "+f"(sums[8 * (i) + 2]), "+f"(sums[8 * (i) + 3]), \
      "+f"(sums[8 * (i) + 4]), "+f"(sums[8 * (i) + 5]), "+f"(sums[8 * (i) + 6]),                  \
      "+f"(sums[8 * (i) + 7])
#define GROUPS_8 EIGHT(0), EIGHT(1), EIGHT(2), EIGHT(3), EIGHT(4), EIGHT(5), EIGHT(6), EIGHT(7)
#define GROUPS_11 GROUPS_8, EIGHT(8), EIGHT(9), EIGHT(10)
#define GROUPS_12 GROUPS_11, EIGHT(11)
#define MULTIPLY(shape, type, sums_text, groups, a, b, keep, transposed)                           \
  asm volatile("{.reg .pred keep; setp.ne.b32 keep, %" keep                                        \
               ", 0;"                                                                              \
               "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" sums_text "}, %" a \
               ", %" b ", keep, 1, 1, %" transposed ", 0;}"                                        \
               : groups                                                                            \
               : "l"(a_descriptor), "l"(b_descriptor), "r"(add), "n"(a_transposed))
#define MULTIPLY_COLUMNS(n, type, count, a, b, keep, transposed) \
  MULTIPLY("m64n" #n "k16", type, SUMS_##count, GROUPS_##count, a, b, keep, transposed)

/// sums [64 x columns] (+)= weights [64 x 16] * activations [16 x columns], asynchronously.
template <bool is_bf16, int a_transposed, int columns>
__device__ __forceinline__ void multiply_chunk(float* sums, unsigned long long a_descriptor,
                                               unsigned long long b_descriptor, int add) {
  if constexpr (columns == 256) {
    // ptxas wants more registers for one instruction than a block of 512 threads begins with.
    constexpr int half_bytes = 128 * chunk_inputs * 2;
    multiply_chunk<is_bf16, a_transposed, 128>(sums, a_descriptor, b_descriptor, add);
    multiply_chunk<is_bf16, a_transposed, 128>(sums + 64, a_descriptor,
                                               b_descriptor + half_bytes / 16, add);
  } else if constexpr (is_bf16 && columns == 128) {
    MULTIPLY_COLUMNS(128, "bf16", 8, "64", "65", "66", "67");
  } else if constexpr (is_bf16) {
    static_assert(columns == 176);
    MULTIPLY_COLUMNS(176, "bf16", 11, "88", "89", "90", "91");
  } else if constexpr (columns == 128) {
    MULTIPLY_COLUMNS(128, "f16", 8, "64", "65", "66", "67");
  } else if constexpr (columns == 176) {
    MULTIPLY_COLUMNS(176, "f16", 11, "88", "89", "90", "91");
  } else {
    static_assert(columns == 192);
    MULTIPLY_COLUMNS(192, "f16", 12, "96", "97", "98", "99");
  }
}

/// What a thread decodes of a chunk: 32 weights, an eighth of a trellis block, half of a 128-byte
/// line of shared memory. Lines are outputs for axis 1 and inputs for axis 0.
template <class Format, int axis, Numeric numeric>
struct ChunkDecoder {
  static constexpr int bits = Format::bits;
  const unsigned* codes;
  const float* scales;
  int inputs;
  int outputs;
  int blocks;
  int output_tile;

  /// The words of 32 weights and the one after, and for the reference their scale.
  struct Run {
    unsigned words[bits + 1];
    float scale;
  };

  __device__ static int half() { return threadIdx.x & 1; }
  __device__ static int line() { return (threadIdx.x >> 1) & 63; }
  __device__ static int side() { return threadIdx.x >> 7 & 1; }  // 64 of the tile's outputs

  __device__ void load(int chunk, Run& run) const {
    const unsigned* block;
    int eighth;  // in the order of positions
    int row;     // of the stored matrix
    if constexpr (axis == 1) {
      row = min(output_tile * tile_outputs + side() * 64 + line(), outputs - 1);
      block = codes + (static_cast<long long>(row) * blocks + chunk / chunks_of_block) *
                          Format::block_words;
      eighth = chunk % chunks_of_block * 2 + half();
    } else {
      row = min(chunk * chunk_inputs + line(), inputs - 1);
      const int group = output_tile * tile_outputs / block_weights;
      block = codes + (static_cast<long long>(group) * inputs + row) * Format::block_words;
      eighth = output_tile % 2 * 4 + side() * 2 + half();
    }
    const int first = (7 - eighth) * bits;
    load_words<bits>(block + first, run.words);
    load_words<1>(block + (first + bits) % Format::block_words, run.words + bits);
    if constexpr (numeric == Numeric::reference) {
      run.scale = __ldg(scales + row);
    }
  }

  /// Two neighbouring weights as they enter the matrix unit.
  __device__ static unsigned pair(unsigned low, unsigned high, float scale) {
    unsigned result;
    if constexpr (numeric == Numeric::reference) {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
          : "=r"(result)
          : "f"(__fmul_rn(exact_value(high), scale)), "f"(__fmul_rn(exact_value(low), scale)));
    } else {
      // A byte sum in the low bits of 1024 as f16, minus 1534 = 1024 + 510.
      const unsigned sums = __byte_perm(__dp4a(low, 0x01010101u, 0x6400u),
                                        __dp4a(high, 0x01010101u, 0x6400u), 0x5410);
      asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(sums), "r"(0x65FE65FEu));
    }
    return result;
  }

  __device__ static void store(const Run& run, uint4* stage) {
    uint4* target = stage + (side() * 64 + line()) * 8;
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = 31 - 8 * piece - 2 * i;  // the last weight lies first
        pairs[i] = pair(hash<Format>(run.words, j * bits), hash<Format>(run.words, (j - 1) * bits),
                        run.scale);
      }
      target[(4 * half() + piece) ^ (line() & 7)] =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }
};

template <Numeric numeric, int columns>
struct TileShared {
  static constexpr int planes = numeric == Numeric::int15 ? 2 : 1;
  uint4 weights[tile_stages][tile_outputs * chunk_inputs / 8];
  uint4 activations[tile_stages][columns * chunk_inputs / 8];
  float scales[tile_stages][columns / planes];
  // Barriers: a chunk's weights and activations are there; both halves have used them.
  unsigned long long full[tile_stages];
  unsigned long long empty[tile_stages];
};

/// total += (the block's exact sums) * scales, one column or pair of columns at a time.
template <int planes, int columns>
__device__ __forceinline__ void add_block(const float (&sums)[columns / 2], const float* scales,
                                          float (&total)[columns / 2 / planes]) {
  const int quarter = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < columns / 8; ++i) {
    if constexpr (planes == 1) {
      const float2 scale = *reinterpret_cast<const float2*>(scales + 8 * i + 2 * quarter);
      total[4 * i] = __fadd_rn(total[4 * i], __fmul_rn(sums[4 * i], scale.x));
      total[4 * i + 1] = __fadd_rn(total[4 * i + 1], __fmul_rn(sums[4 * i + 1], scale.y));
      total[4 * i + 2] = __fadd_rn(total[4 * i + 2], __fmul_rn(sums[4 * i + 2], scale.x));
      total[4 * i + 3] = __fadd_rn(total[4 * i + 3], __fmul_rn(sums[4 * i + 3], scale.y));
    } else {
      const float scale = scales[4 * i + quarter];
      for (int half = 0; half < 2; ++half) {
        const float exact = __fmaf_rn(sums[4 * i + 2 * half], 256.0f, sums[4 * i + 2 * half + 1]);
        total[2 * i + half] = __fadd_rn(total[2 * i + half], __fmul_rn(exact, scale));
      }
    }
  }
}

__device__ __forceinline__ void store_result(float value, float* to) { *to = value; }

/// As bf16.
__device__ __forceinline__ void store_result(float value, unsigned short* to) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*to) : "f"(value));
}

/// The last factor, and the tile's results [rows, outputs].
template <int axis, Numeric numeric, int columns, int count, class Output>
__device__ __forceinline__ void write_tile(const float (&sums)[columns / 2],
                                           const float (&total)[count], const float* weight_scales,
                                           int rows, int outputs, Output* out) {
  constexpr int planes = numeric == Numeric::int15 ? 2 : 1;
  constexpr bool reference = numeric == Numeric::reference;
  constexpr int tile_rows = columns / planes;
  const int lane = threadIdx.x % lanes;
  for (int half = 0; half < 2; ++half) {
    const int output = blockIdx.y * tile_outputs + threadIdx.x / lanes * 16 + lane / 4 + 8 * half;
    if (output >= outputs) {
      continue;
    }
    const float factor = axis == 1 ? __fmul_rn(weight_scales[output], reciprocal()) : reciprocal();
#pragma unroll
    for (int i = 0; i < tile_rows / 4; ++i) {
      // Two rows of one column each for every pair of columns, or one row of two.
      const int row = blockIdx.x * tile_rows +
                      (planes == 1 ? 8 * (i / 2) + 2 * (lane % 4) + i % 2 : 4 * i + lane % 4);
      if (row < rows) {
        const int at = planes == 1 ? 4 * (i / 2) + 2 * half + i % 2 : 2 * i + half;
        store_result(
            reference ? sums[reference ? at : 0] : __fmul_rn(total[reference ? 0 : at], factor),
            out + static_cast<long long>(row) * outputs + output);
      }
    }
  }
}

__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

template <Numeric numeric, int columns>
struct TileInput {
  static constexpr int tile_rows = columns / (numeric == Numeric::int15 ? 2 : 1);
  const unsigned short* tiles;  // of this column tile
  const float* scales;          // of this column tile
  int chunks;

  /// Begins the copy of a chunk's activations into its stage, of a block's last also the scales.
  template <class Shared>
  __device__ void fetch(int chunk, Shared& shared) const {
    constexpr unsigned chunk_bytes = columns * chunk_inputs * 2;
    const int stage = chunk % tile_stages;
    const unsigned barrier = shared_address(&shared.full[stage]);
    const bool with_scales =
        numeric != Numeric::reference && chunk % chunks_of_block == chunks_of_block - 1;
    const unsigned bytes = chunk_bytes + (with_scales ? tile_rows * 4 : 0);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
    copy_to_shared(shared_address(shared.activations[stage]),
                   tiles + static_cast<long long>(chunk) * columns * chunk_inputs, chunk_bytes,
                   barrier);
    if (with_scales) {
      copy_to_shared(shared_address(shared.scales[stage]),
                     scales + chunk / chunks_of_block * tile_rows, tile_rows * 4, barrier);
    }
  }
};

/// What half of the threads do: fill stages with decoded weights, one of them also with
/// activations.
template <class Decoder, class Input, class Shared>
__device__ __forceinline__ void fill_stages(const Decoder& decoder, const Input& input,
                                            Shared& shared) {
  const auto fill = [&](int chunk, const typename Decoder::Run& run) {
    const int stage = chunk % tile_stages;
    wait_for(shared_address(&shared.empty[stage]), (chunk / tile_stages & 1) ^ 1);
    if (threadIdx.x == role_threads) {
      input.fetch(chunk, shared);
    }
    Decoder::store(run, shared.weights[stage]);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    arrive(shared_address(&shared.full[stage]));
  };
  // Runs in turn: copying one to another would wait for its loads.
  typename Decoder::Run runs[tile_stages];
  constexpr int ahead = 2;
  for (int chunk = 0; chunk < ahead; ++chunk) {
    decoder.load(chunk, runs[chunk]);
  }
  for (int first = 0; first < input.chunks; first += tile_stages) {
#pragma unroll
    for (int i = 0; i < tile_stages; ++i) {
      if (first + i + ahead < input.chunks) {
        decoder.load(first + i + ahead, runs[(i + ahead) % tile_stages]);
      }
      fill(first + i, runs[i]);
    }
  }
}

/// out [rows, outputs] = activations times weights. Grid: x column tiles, y tiles of 128 outputs;
/// 512 threads, the first half multiplies, the second decodes; shared memory: TileShared and 1024
/// bytes to align it. `tiles` and `scales` as from `prepare_tiles`; `weight_scales` [outputs] for
/// axis 1, [inputs] for axis 0. Output: float, or for the reference the bits of bf16.
template <class Format, int axis, Numeric numeric, int columns, class Output>
__device__ void multiply_tile(const unsigned short* tiles, const float* scales,
                              const unsigned* codes, const float* weight_scales, int rows,
                              int inputs, int outputs, Output* out) {
  constexpr int planes = numeric == Numeric::int15 ? 2 : 1;
  constexpr bool reference = numeric == Numeric::reference;
  constexpr int tile_rows = columns / planes;
  using Shared = TileShared<numeric, columns>;
  extern __shared__ char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared*>(
      shared_bytes + (-static_cast<int>(shared_address(shared_bytes)) & 1023));
  const int blocks = (inputs + block_weights - 1) / block_weights;
  const int chunks = blocks * chunks_of_block;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < tile_stages; ++stage) {
      asm volatile(
          "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&shared.full[stage])),
          "n"(role_threads));
      asm volatile(
          "mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(shared_address(&shared.empty[stage])));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (__shfl_sync(~0u, threadIdx.x / role_threads, 0) != 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
    fill_stages(ChunkDecoder<Format, axis, numeric>{codes, weight_scales, inputs, outputs, blocks,
                                                    static_cast<int>(blockIdx.y)},
                TileInput<numeric, columns>{
                    tiles + static_cast<long long>(blockIdx.x) * chunks * columns * chunk_inputs,
                    scales + static_cast<long long>(blockIdx.x) * blocks * tile_rows, chunks},
                shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    const int side = threadIdx.x / 128;
    const bool leads = threadIdx.x % 128 == 0;
    float sums[columns / 2];
    float total[reference ? 1 : columns / 2 / planes] = {};
    static_assert(tile_stages == chunks_of_block);  // so a chunk's stage is its place in its block
    for (int block = 0; block < blocks; ++block) {
#pragma unroll
      for (int stage = 0; stage < tile_stages; ++stage) {
        wait_for(shared_address(&shared.full[stage]), block & 1);
        const unsigned weights =
            shared_address(shared.weights[stage]) + side * 64 * chunk_inputs * 2;
        const unsigned activations = shared_address(shared.activations[stage]);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < chunk_inputs / 16; ++step) {
          // 16 inputs: 32 bytes of each line where lines are outputs, 16 lines where they are
          // inputs.
          multiply_chunk<reference, axis == 0, columns>(
              sums, matrix_descriptor(weights + step * (axis == 1 ? 32 : 2048)),
              matrix_descriptor(activations + step * 32),
              stage > 0 || step > 0 || (reference && block > 0));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (stage > 0) {
          asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          if (leads) {
            arrive(shared_address(&shared.empty[stage - 1]));
          }
        }
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if constexpr (!reference) {
        add_block<planes, columns>(sums, shared.scales[tile_stages - 1], total);
        // All have read the scales before the stage is given back.
        asm volatile("bar.sync %0, 128;" ::"r"(side + 1) : "memory");
      }
      if (leads) {
        arrive(shared_address(&shared.empty[tile_stages - 1]));
      }
    }
    write_tile<axis, numeric, columns>(sums, total, weight_scales, rows, outputs, out);
  }
}

#endif  // defined(__CUDA_ARCH_FEAT_SM90_ALL)

}  // namespace espalier
