// Products of many rows with trellis-coded weights on CUDA, for processors with warpgroup matrix
// instructions (compute capability 9.0, compiled for sm_90a). Two warpgroups decode weights into
// the registers from which the matrix unit takes them, the next while it works on the ones before;
// a third brings codes and activations.
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
constexpr int chunk_inputs = 64;  // of activations at a time: 128 bytes, one swizzle pattern
constexpr int chunks_of_block = block_weights / chunk_inputs;
constexpr int multiply_threads = 256;
constexpr int fetch_threads = 128;  // a warp for activations, three for codes
constexpr int code_threads = fetch_threads - lanes;
constexpr int tile_threads = multiply_threads + fetch_threads;

/// The input of an activation block that place `place` of its 256 holds: the order in which lanes
/// decode. A matrix instruction takes 16 places, a lane's of them are 2 (lane % 4), the next and
/// both again from 8 on. Along inputs these are what its quarter of a trellis block holds next.
template <int axis>
__device__ __forceinline__ int input_of_place(int place) {
  return axis == 1 ? 255 - 64 * (place % 8 / 2) - place / 8 * 2 - place % 2 : place;
}

/// Four neighbours, read at once.
template <class T>
struct __align__(4 * sizeof(T)) Four {
  T values[4];
};

/// The lane's eight places of an activation block of x [rows, inputs], times their inputs' scales
/// if there are any; zero past the last input.
template <int axis, class T>
__device__ __forceinline__ void load_places(const T* x, const float* input_scales, int row,
                                            int block, int inputs, float (&values)[8]) {
  const int lane = threadIdx.x % lanes;
  const T* from = x + static_cast<long long>(row) * inputs + block * block_weights;
  const int first = axis == 0 ? 8 * lane : 0;
  const bool is_whole = block * block_weights + first + 8 <= inputs;
  const bool is_aligned = reinterpret_cast<unsigned long long>(from) % sizeof(Four<T>) == 0;
  if (axis == 0 && is_whole && is_aligned) {
    const float* scales = input_scales + block * block_weights + first;
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const auto four = *reinterpret_cast<const Four<T>*>(from + first + i);
      const float4 scale = input_scales == nullptr ? make_float4(1.0f, 1.0f, 1.0f, 1.0f)
                                                   : *reinterpret_cast<const float4*>(scales + i);
      values[i] = __fmul_rn(static_cast<float>(four.values[0]), scale.x);
      values[i + 1] = __fmul_rn(static_cast<float>(four.values[1]), scale.y);
      values[i + 2] = __fmul_rn(static_cast<float>(four.values[2]), scale.z);
      values[i + 3] = __fmul_rn(static_cast<float>(four.values[3]), scale.w);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int input = block * block_weights + input_of_place<axis>(8 * lane + i);
    values[i] = input_scales == nullptr ? activation<1>(x, input_scales, row, input, inputs)
                                        : activation<0>(x, input_scales, row, input, inputs);
  }
}

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
  if (row < rows) {
    // The reference scales weights, never activations.
    load_places<axis>(x, axis == 0 && numeric != Numeric::reference ? input_scales : nullptr, row,
                      block, inputs, values);
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
#define SUMS_13 SUMS_12 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define SUMS_14 SUMS_13 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define SUMS_15 SUMS_14 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define SUMS_16 SUMS_15 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define EIGHT(i)                                                                                  \
  "+f"(sums[8 * (i)]), "+f"(sums[8 * (i) + 1]), "+f"(sums[8 * (i) + 2]), "+f"(sums[8 * (i) + 3]), \
      "+f"(sums[8 * (i) + 4]), "+f"(sums[8 * (i) + 5]), "+f"(sums[8 * (i) + 6]),                  \
      "+f"(sums[8 * (i) + 7])
#define GROUPS_8 EIGHT(0), EIGHT(1), EIGHT(2), EIGHT(3), EIGHT(4), EIGHT(5), EIGHT(6), EIGHT(7)
#define GROUPS_11 GROUPS_8, EIGHT(8), EIGHT(9), EIGHT(10)
#define GROUPS_12 GROUPS_11, EIGHT(11)
#define GROUPS_16 GROUPS_12, EIGHT(12), EIGHT(13), EIGHT(14), EIGHT(15)
#define MULTIPLY(shape, type, sums_text, groups, a0, a1, a2, a3, b, keep)                 \
  asm volatile("{.reg .pred keep; setp.ne.b32 keep, %" keep                               \
               ", 0;"                                                                     \
               "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" sums_text \
               "}, "                                                                      \
               "{%" a0 ",%" a1 ",%" a2 ",%" a3 "}, %" b ", keep, 1, 1, 0;}"               \
               : groups                                                                   \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor), "r"(add))
#define MULTIPLY_COLUMNS(n, type, count, a0, a1, a2, a3, b, keep) \
  MULTIPLY("m64n" #n "k16", type, SUMS_##count, GROUPS_##count, a0, a1, a2, a3, b, keep)

/// sums [64 x columns] (+)= weights [64 x 16] * activations [16 x columns], asynchronously.
template <bool is_bf16, int columns>
__device__ __forceinline__ void multiply_step(float* sums, const unsigned* a,
                                              unsigned long long b_descriptor, int add) {
  static_assert(columns == 128 || columns == 176 || columns == 192 || columns == 256);
  if constexpr (columns == 128 && is_bf16) {
    MULTIPLY_COLUMNS(128, "bf16", 8, "64", "65", "66", "67", "68", "69");
  } else if constexpr (columns == 128) {
    MULTIPLY_COLUMNS(128, "f16", 8, "64", "65", "66", "67", "68", "69");
  } else if constexpr (columns == 176 && is_bf16) {
    MULTIPLY_COLUMNS(176, "bf16", 11, "88", "89", "90", "91", "92", "93");
  } else if constexpr (columns == 176) {
    MULTIPLY_COLUMNS(176, "f16", 11, "88", "89", "90", "91", "92", "93");
  } else if constexpr (columns == 192 && is_bf16) {
    MULTIPLY_COLUMNS(192, "bf16", 12, "96", "97", "98", "99", "100", "101");
  } else if constexpr (columns == 192) {
    MULTIPLY_COLUMNS(192, "f16", 12, "96", "97", "98", "99", "100", "101");
  } else if constexpr (is_bf16) {
    MULTIPLY_COLUMNS(256, "bf16", 16, "128", "129", "130", "131", "132", "133");
  } else {
    MULTIPLY_COLUMNS(256, "f16", 16, "128", "129", "130", "131", "132", "133");
  }
}

/// Two neighbouring weights, from their hashes, as they enter the matrix unit. `scales` are the
/// reference's.
template <Numeric numeric>
__device__ __forceinline__ unsigned weight_pair(unsigned low, unsigned high, float low_scale,
                                                float high_scale) {
  unsigned result;
  if constexpr (numeric == Numeric::reference) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
        : "=r"(result)
        : "f"(__fmul_rn(exact_value(high), high_scale)),
          "f"(__fmul_rn(exact_value(low), low_scale)));
  } else {
    // A byte sum in the low bits of 1024 as f16, minus 1534 = 1024 + 510.
    const unsigned sums =
        __byte_perm(__dp4a(low, 0x01010101u, 0x6400u), __dp4a(high, 0x01010101u, 0x6400u), 0x5410);
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(sums), "r"(0x65FE65FEu));
  }
  return result;
}

/// Steps of the matrix instruction, 16 inputs each, whose weights a thread decodes at a time: one
/// where sums or the words of codes leave no registers for two.
template <int axis, int columns>
constexpr int unit_steps = axis == 0 || columns > 192 ? 1 : 2;
/// Units in registers, and how many of them the matrix unit may still have in use when the next is
/// decoded: what was faster on an H200.
constexpr int unit_buffers = 4;
template <int axis>
constexpr int units_in_use = axis == 0 ? 3 : 2;

/// The lines of codes of an activation block in shared memory, and what a thread decodes of them:
/// two of the 16 outputs of its warp, of each step's inputs the four of its lane quarter.
template <class Format, int axis, Numeric numeric, int steps>
class TileDecoder;

/// Along inputs a line is an output. A lane decodes a quarter of the trellis blocks of outputs
/// lane / 4 and lane / 4 + 8 of its warp's 16, whose words it keeps.
template <class Format, Numeric numeric, int steps>
class TileDecoder<Format, 1, numeric, steps> {
 public:
  static constexpr int unit_words = 4 * steps;
  static constexpr int lines = tile_outputs;
  static constexpr int line_words = Format::block_words;

  __device__ TileDecoder(int tile, const float* weight_scales, int outputs) {
    const int output = tile * tile_outputs + local_output(0);
    for (int half = 0; half < 2 && numeric == Numeric::reference; ++half) {
      scales_[half] = __ldg(weight_scales + min(output + 8 * half, outputs - 1));
    }
  }

  /// Of a tile's 128 outputs.
  __device__ static int local_output(int half) {
    return threadIdx.x / lanes * 16 + threadIdx.x % lanes / 4 + 8 * half;
  }
  __device__ static int output(int tile, int local) { return tile * tile_outputs + local; }
  /// Where an output lies in a line of the tile's results in shared memory.
  __device__ static int place(int local) { return local; }

  __device__ __forceinline__ void begin(const unsigned* codes, const float*) {
    const int quarter = threadIdx.x % 4;
    for (int half = 0; half < 2; ++half) {
      const unsigned* line = codes + local_output(half) * line_words;
      read_words<2 * bits>(line + quarter * 2 * bits, line + (quarter + 1) % 4 * 2 * bits,
                           words_[half]);
    }
  }

  __device__ __forceinline__ void decode(int unit, unsigned (&to)[unit_words]) const {
#pragma unroll
    for (int i = 0; i < unit_words; ++i) {
      const int half = i % 2;
      const int at = (unit * unit_words + i / 2 * 2) * bits;
      to[i] =
          weight_pair<numeric>(hash<Format>(words_[half], at),
                               hash<Format>(words_[half], at + bits), scales_[half], scales_[half]);
    }
  }

 private:
  static constexpr int bits = Format::bits;
  unsigned words_[2][2 * bits + 1];
  float scales_[2] = {};
};

/// Along outputs a line is an input, a tile half of each eighth of a trellis block. A lane decodes
/// two neighbouring weights of eighth lane / 4 of each of its inputs, which lie in one word or two.
template <class Format, Numeric numeric, int steps>
class TileDecoder<Format, 0, numeric, steps> {
 public:
  static constexpr int unit_words = 4 * steps;
  static constexpr int lines = block_weights;
  static constexpr int line_words = Format::block_words + 4;  // spreads lines over the banks

  __device__ TileDecoder(int tile, const float*, int) {
    const int at = (tile % 2 * 16 + threadIdx.x / lanes * 2) * bits;
    const int word = threadIdx.x % lanes / 4 * bits + at / 32;
    first_ = threadIdx.x % 4 * 2 * line_words + word;
    second_ = threadIdx.x % 4 * 2 * line_words + (word + 1) % Format::block_words;
    shift_ = at % 32;
    straddles_ = shift_ + bits + Format::state_bits > 32;
  }

  /// In the order of positions: eight runs of 16 outputs.
  __device__ static int local_output(int half) {
    return 127 - threadIdx.x % lanes / 4 * 16 - threadIdx.x / lanes * 2 - half;
  }
  __device__ static int output(int tile, int local) {
    return tile / 2 * block_weights + local / 16 * 32 + (1 - tile % 2) * 16 + local % 16;
  }
  /// What a warp writes at once, one output of each run, lies in as many banks.
  __device__ static int place(int local) { return (15 - local % 16) * 9 + 7 - local / 16; }

  __device__ __forceinline__ void begin(const unsigned* codes, const float* scales) {
    codes_ = codes;
    scales_ = scales + threadIdx.x % 4 * 2;
    load(0);
  }

  __device__ __forceinline__ void decode(int unit, unsigned (&to)[unit_words]) {
    unsigned windows[unit_words];
#pragma unroll
    for (int i = 0; i < unit_words; ++i) {
      windows[i] = __funnelshift_r(low_[i], high_[i], shift_);
    }
    if ((unit + 1) * steps * 16 < block_weights) {
      load(unit + 1);
    }
#pragma unroll
    for (int i = 0; i < unit_words; i += 2) {
      const float2 scale = numeric == Numeric::reference
                               ? *reinterpret_cast<const float2*>(scales_ + line_of(unit, i))
                               : float2{};
      to[i] = weight_pair<numeric>(hash_of(windows[i]), hash_of(windows[i + 1]), scale.x, scale.y);
      to[i + 1] = weight_pair<numeric>(hash_of(windows[i] >> bits), hash_of(windows[i + 1] >> bits),
                                       scale.x, scale.y);
    }
  }

 private:
  static constexpr int bits = Format::bits;

  /// Input i of a lane's in a unit, counted from the first of its lane quarter.
  __device__ __forceinline__ static int line_of(int unit, int i) {
    return unit * steps * 16 + i / 4 * 16 + i / 2 % 2 * 8 + i % 2;
  }
  __device__ __forceinline__ static unsigned hash_of(unsigned state) {
    return (state & Format::mask) * Format::multiplier + Format::addend;
  }
  /// The words of a unit, before the one ahead of it is decoded.
  __device__ __forceinline__ void load(int unit) {
#pragma unroll
    for (int i = 0; i < unit_words; ++i) {
      const int line = line_of(unit, i) * line_words;
      low_[i] = codes_[first_ + line];
      if (straddles_) {
        high_[i] = codes_[second_ + line];
      }
    }
  }

  unsigned low_[unit_words];
  unsigned high_[unit_words] = {};
  const unsigned* codes_;
  const float* scales_;
  int first_;
  int second_;
  int shift_;
  bool straddles_;
};

/// Chunks of activations in flight: as many as an activation block has, so that a chunk's place in
/// memory is its place in its block.
constexpr int tile_chunks = chunks_of_block;
/// What a thread block may have, less what aligns it and some that the compiler takes.
constexpr int most_tile_bytes = 232448 - 2048;

template <class Decoder, Numeric numeric, int columns>
struct TileShared {
  static constexpr int planes = numeric == Numeric::int15 ? 2 : 1;
  static constexpr int chunk_bytes = columns * chunk_inputs * 2;
  // Of a tile's rows; for the reference, along outputs, of the block's inputs.
  static constexpr int block_scales =
      numeric == Numeric::reference ? block_weights : columns / planes;
  static constexpr int block_bytes = (Decoder::lines * Decoder::line_words + block_scales) * 4;
  // Activation blocks of codes in flight.
  static constexpr int tile_blocks =
      tile_chunks * chunk_bytes + 3 * block_bytes <= most_tile_bytes - 256 ? 3 : 2;
  uint4 activations[tile_chunks][chunk_bytes / 16];
  unsigned codes[tile_blocks][Decoder::lines * Decoder::line_words];
  float scales[tile_blocks][block_scales];
  // Barriers: all is there; all who read it have.
  unsigned long long chunk_full[tile_chunks];
  unsigned long long chunk_empty[tile_chunks];
  unsigned long long block_full[tile_blocks];
  unsigned long long block_empty[tile_blocks];
};

template <class Shared>
__device__ __forceinline__ Shared& tile_shared() {
  extern __shared__ char shared_bytes[];
  return *reinterpret_cast<Shared*>(shared_bytes +
                                    (-static_cast<int>(shared_address(shared_bytes)) & 1023));
}

__device__ __forceinline__ void init_barrier(unsigned long long& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(count));
}

__device__ __forceinline__ void arrive(unsigned long long& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier))
               : "memory");
}

__device__ __forceinline__ void expect_bytes(unsigned long long& barrier, unsigned bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
      "r"(bytes)
      : "memory");
}

/// What one thread does: brings activations and the scales of their rows.
template <Numeric numeric, int columns, class Shared>
__device__ __forceinline__ void fetch_activations(const unsigned short* tiles, const float* scales,
                                                  int blocks, Shared& shared) {
  constexpr int tile_rows = columns / Shared::planes;
  const long long first_block = static_cast<long long>(blockIdx.x) * blocks;
  const char* from =
      reinterpret_cast<const char*>(tiles) + first_block * chunks_of_block * Shared::chunk_bytes;
  scales += first_block * tile_rows;
  for (int block = 0; block < blocks; ++block) {
    if constexpr (numeric != Numeric::reference) {
      const int stage = block % Shared::tile_blocks;
      wait_for(shared_address(&shared.block_empty[stage]), (block / Shared::tile_blocks & 1) ^ 1);
      expect_bytes(shared.block_full[stage], tile_rows * 4);
      copy_to_shared(shared_address(shared.scales[stage]), scales + block * tile_rows,
                     tile_rows * 4, shared_address(&shared.block_full[stage]));
    }
    for (int chunk = 0; chunk < tile_chunks; ++chunk) {
      wait_for(shared_address(&shared.chunk_empty[chunk]), (block & 1) ^ 1);
      expect_bytes(shared.chunk_full[chunk], Shared::chunk_bytes);
      copy_to_shared(shared_address(shared.activations[chunk]), from, Shared::chunk_bytes,
                     shared_address(&shared.chunk_full[chunk]));
      from += Shared::chunk_bytes;
    }
  }
}

/// What three warps do: bring codes, and for the reference the scales of a block's inputs. Lines
/// past the last keep what they hold: they meet activations that are zero, or none ask for them.
template <class Decoder, class Format, int axis, Numeric numeric, class Shared>
__device__ __forceinline__ void fetch_codes(const unsigned* codes, const float* weight_scales,
                                            int inputs, int outputs, int blocks, Shared& shared) {
  constexpr int line_pieces = Format::block_words / 4;  // of 16 bytes
  constexpr int together = code_threads / line_pieces;  // lines
  constexpr int scale_turns = (block_weights + code_threads - 1) / code_threads;
  constexpr bool with_scales = numeric == Numeric::reference && axis == 0;
  const int thread = static_cast<int>(threadIdx.x) - multiply_threads - lanes;
  const int tile = blockIdx.y;
  const int line = thread / line_pieces;
  const long long line_bytes = (axis == 1 ? blocks : 1) * Format::block_words * 4ll;
  const long long first_line =
      axis == 1 ? tile * tile_outputs : static_cast<long long>(tile / 2) * inputs;
  const char* from = reinterpret_cast<const char*>(codes) + (first_line + line) * line_bytes +
                     thread % line_pieces * 16;
  constexpr int block_bytes = Format::block_words * 4 * (axis == 1 ? 1 : block_weights);
  for (int block = 0; block < blocks; ++block) {
    const int stage = block % Shared::tile_blocks;
    float scales[scale_turns];
    for (int i = 0; i < scale_turns && with_scales; ++i) {
      const int input = block * block_weights + thread + i * code_threads;
      scales[i] = input < inputs ? __ldg(weight_scales + input) : 0.0f;
    }
    wait_for(shared_address(&shared.block_empty[stage]), (block / Shared::tile_blocks & 1) ^ 1);
    const int count = min(
        Decoder::lines, axis == 1 ? outputs - tile * tile_outputs : inputs - block * block_weights);
    unsigned to = shared_address(shared.codes[stage] + line * Decoder::line_words) +
                  thread % line_pieces * 16;
    const char* piece = from;
#pragma unroll 4
    for (int i = line; i < count; i += together) {
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(piece)
                   : "memory");
      to += together * Decoder::line_words * 4;
      piece += together * line_bytes;
    }
    from += block_bytes;
    if constexpr (with_scales) {
      for (int i = 0; i < scale_turns; ++i) {
        if (thread + i * code_threads < block_weights) {
          shared.scales[stage][thread + i * code_threads] = scales[i];
        }
      }
      arrive(shared.block_full[stage]);
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                     shared_address(&shared.block_full[stage]))
                 : "memory");
  }
}

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

/// A line of a tile's results in shared memory: lines are apart by what spreads a warp's writes
/// over the banks.
constexpr int staged_line = 148;

/// The last factor, and the tile's results [rows, outputs], by way of shared memory so that
/// neighbouring threads write neighbouring outputs.
template <class Decoder, int axis, Numeric numeric, int columns, int totals, class Output>
__device__ __forceinline__ void write_tile(const float (&sums)[columns / 2],
                                           const float (&total)[totals], const float* weight_scales,
                                           int rows, int outputs, Output* staged, Output* out) {
  constexpr int planes = numeric == Numeric::int15 ? 2 : 1;
  constexpr bool reference = numeric == Numeric::reference;
  constexpr int tile_rows = columns / planes;
  const int tile = blockIdx.y;
  const int quarter = threadIdx.x % 4;
  // All have multiplied with the activations that lay there.
  asm volatile("bar.sync 1, %0;" ::"n"(multiply_threads) : "memory");
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int local = Decoder::local_output(half);
    const int output = min(Decoder::output(tile, local), outputs - 1);
    const float factor = axis == 1 ? __fmul_rn(weight_scales[output], reciprocal()) : reciprocal();
#pragma unroll
    for (int i = 0; i < tile_rows / 4; ++i) {
      // Two rows of one column each for every pair of columns, or one row of two.
      const int row = planes == 1 ? 8 * (i / 2) + 2 * quarter + i % 2 : 4 * i + quarter;
      const int at = planes == 1 ? 4 * (i / 2) + 2 * half + i % 2 : 2 * i + half;
      store_result(
          reference ? sums[reference ? at : 0] : __fmul_rn(total[reference ? 0 : at], factor),
          staged + row * staged_line + Decoder::place(local));
    }
  }
  asm volatile("bar.sync 1, %0;" ::"n"(multiply_threads) : "memory");
  const int lane = threadIdx.x % lanes;
  const int first_row = blockIdx.x * tile_rows;
  const int count = min(tile_rows, rows - first_row);
  int output[tile_outputs / lanes];
  int place[tile_outputs / lanes];
#pragma unroll
  for (int i = 0; i < tile_outputs / lanes; ++i) {
    output[i] = Decoder::output(tile, lane + lanes * i);
    place[i] = Decoder::place(lane + lanes * i);
  }
#pragma unroll 4
  for (int row = threadIdx.x / lanes; row < count; row += multiply_threads / lanes) {
    Output* to = out + static_cast<long long>(first_row + row) * outputs;
#pragma unroll
    for (int i = 0; i < tile_outputs / lanes; ++i) {
      if (output[i] < outputs) {
        to[output[i]] = staged[row * staged_line + place[i]];
      }
    }
  }
}

/// Keeps reads of `sums` behind what is before it.
template <int count>
__device__ __forceinline__ void hold(float (&sums)[count]) {
#pragma unroll
  for (float& sum : sums) {
    asm volatile("" : "+f"(sum)::"memory");
  }
}

template <int count>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(count) : "memory");
}

/// What a warpgroup does that multiplies: its 64 outputs of the tile by all columns.
template <class Decoder, int axis, Numeric numeric, int columns, class Shared, class Output>
__device__ __forceinline__ void multiply_blocks(Decoder decoder, const float* weight_scales,
                                                int rows, int outputs, int blocks, Shared& shared,
                                                Output* out) {
  constexpr bool reference = numeric == Numeric::reference;
  constexpr int steps = unit_steps<axis, columns>;
  constexpr int chunk_units = chunk_inputs / 16 / steps;
  constexpr int units = chunks_of_block * chunk_units;
  constexpr int behind = units_in_use<axis>;
  // The next block's first unit is decoded while the last of this one are in use.
  static_assert(behind < unit_buffers && units % unit_buffers == 0);
  float sums[columns / 2];
  float total[reference ? 1 : columns / 2 / Shared::planes] = {};
  unsigned weights[unit_buffers][4 * steps];
  const auto begin = [&](int block) {
    const int stage = block % Shared::tile_blocks;
    wait_for(shared_address(&shared.block_full[stage]), block / Shared::tile_blocks & 1);
    decoder.begin(shared.codes[stage], shared.scales[stage]);
    decoder.decode(0, weights[0]);
  };
  // Gives back the chunk that ends with this unit, if one does.
  const auto release_after = [&](int unit) {
    if ((unit + 1) % chunk_units == 0 && threadIdx.x % lanes == 0) {
      arrive(shared.chunk_empty[unit / chunk_units]);
    }
  };
  const unsigned long long activations = matrix_descriptor(shared_address(shared.activations));
  begin(0);
  for (int block = 0; block < blocks; ++block) {
#pragma unroll
    for (int unit = 0; unit < units; ++unit) {
      const int chunk = unit / chunk_units;
      if (unit % chunk_units == 0) {
        wait_for(shared_address(&shared.chunk_full[chunk]), block & 1);
      }
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        const int at = chunk * Shared::chunk_bytes + (unit % chunk_units * steps + step) * 32;
        multiply_step<reference, columns>(sums, weights[unit % unit_buffers] + 4 * step,
                                          activations + at / 16,
                                          unit > 0 || step > 0 || (reference && block > 0));
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      wait_for_products<behind>();
      if (unit >= behind) {
        release_after(unit - behind);
      }
      if (unit + 1 < units) {
        decoder.decode(unit + 1, weights[(unit + 1) % unit_buffers]);
      }
    }
    if (block + 1 < blocks) {
      begin(block + 1);
    }
    // For the reference, too: what is multiplied may not outlast the loop's turn, since the
    // compiler then gives its registers to others.
    wait_for_products<0>();
    hold(sums);
#pragma unroll
    for (int unit = units - behind; unit < units; ++unit) {
      release_after(unit);
    }
    if constexpr (!reference) {
      add_block<Shared::planes, columns>(sums, shared.scales[block % Shared::tile_blocks], total);
    }
    arrive(shared.block_empty[block % Shared::tile_blocks]);
  }
  write_tile<Decoder, axis, numeric, columns>(sums, total, weight_scales, rows, outputs,
                                              reinterpret_cast<Output*>(shared.activations), out);
}

/// out [rows, outputs] = activations times weights. Grid: x column tiles, y tiles of 128 outputs;
/// 384 threads; shared memory: TileShared and 1024 bytes to align it. `tiles` and `scales` as from
/// `prepare_tiles`; `weight_scales` [outputs] for axis 1, [inputs] for axis 0. Output: float, or
/// for the reference the bits of bf16.
template <class Format, int axis, Numeric numeric, int columns, class Output>
__device__ void multiply_tile(const unsigned short* tiles, const float* scales,
                              const unsigned* codes, const float* weight_scales, int rows,
                              int inputs, int outputs, Output* out) {
  using Decoder = TileDecoder<Format, axis, numeric, unit_steps<axis, columns>>;
  using Shared = TileShared<Decoder, numeric, columns>;
  constexpr int tile_rows = columns / Shared::planes;
  static_assert(tile_rows * staged_line * sizeof(Output) <=
                sizeof(Shared::activations) + sizeof(Shared::codes));
  static_assert(sizeof(Shared) <= most_tile_bytes);
  auto& shared = tile_shared<Shared>();
  const int blocks = (inputs + block_weights - 1) / block_weights;
  // Who brings codes arrives when these are there, and once more with scales of inputs; who brings
  // scales of rows arrives, too.
  constexpr int full_count = numeric != Numeric::reference ? code_threads + 1
                             : axis == 0                   ? 2 * code_threads
                                                           : code_threads;
  if (threadIdx.x == 0) {
    for (int chunk = 0; chunk < tile_chunks; ++chunk) {
      init_barrier(shared.chunk_full[chunk], 1);
      init_barrier(shared.chunk_empty[chunk], multiply_threads / lanes);
    }
    for (int block = 0; block < Shared::tile_blocks; ++block) {
      init_barrier(shared.block_full[block], full_count);
      init_barrier(shared.block_empty[block], multiply_threads);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int role = __shfl_sync(~0u, threadIdx.x / lanes, 0);
  if (role < multiply_threads / lanes) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    multiply_blocks<Decoder, axis, numeric, columns>(Decoder(blockIdx.y, weight_scales, outputs),
                                                     weight_scales, rows, outputs, blocks, shared,
                                                     out);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == multiply_threads) {
      fetch_activations<numeric, columns>(tiles, scales, blocks, shared);
    } else if (role > multiply_threads / lanes) {
      fetch_codes<Decoder, Format, axis, numeric>(codes, weight_scales, inputs, outputs, blocks,
                                                  shared);
    }
  }
}

#undef MULTIPLY
#undef MULTIPLY_COLUMNS

#endif  // defined(__CUDA_ARCH_FEAT_SM90_ALL)

}  // namespace espalier
