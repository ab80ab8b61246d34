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

/// A warp makes integers of an activation block, eight values a lane; returns its scale.
template <int planes>
__device__ __forceinline__ float to_integers(const float (&values)[8], int (&integers)[8]) {
  float largest = 0.0f;
  for (int i = 0; i < 8; ++i) {
    largest = fmaxf(largest, fabsf(values[i]));
  }
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  }
  constexpr float limit = planes == 2 ? 32512.0f : 127.0f;
  const float scale = __fdiv_rn(largest, limit);
  if (scale > 1e-30f && scale < 1e30f) {
    // The quotient as division makes it, with the reciprocal computed once: two steps of Newton's
    // method are right to the last bit where nothing overflows. 2^23 + 2^22 rounds to integers.
    const float inverse = __frcp_rn(scale);
    constexpr float rounder = 12582912.0f;
    for (int i = 0; i < 8; ++i) {
      float q = __fmul_rn(values[i], inverse);
      q = __fmaf_rn(__fmaf_rn(-q, scale, values[i]), inverse, q);
      q = __fmaf_rn(__fmaf_rn(-q, scale, values[i]), inverse, q);
      integers[i] = __float_as_int(__fadd_rn(q, rounder)) - __float_as_int(rounder);
    }
    return scale;
  }
  for (int i = 0; i < 8; ++i) {
    integers[i] =
        scale > 0.0f ? __float2int_rn(fmaxf(fminf(__fdiv_rn(values[i], scale), limit), -limit)) : 0;
  }
  return scale > 0.0f ? scale : 0.0f;
}

/// The same in planes: of two the first holds the high bytes, the last the low ones.
template <int planes>
__device__ float quantize(const float (&values)[8], int (&parts)[planes][8]) {
  const float scale = to_integers<planes>(values, parts[planes - 1]);
  for (int i = 0; i < 8 && planes == 2; ++i) {
    const int q = parts[planes - 1][i];
    parts[planes - 1][i] = static_cast<signed char>(q & 0xFF);
    parts[0][i] = (q - parts[planes - 1][i]) / 256;
  }
  return scale;
}

/// Low bytes of eight integers, and their sum added to `total`.
__device__ __forceinline__ uint2 pack_bytes(const int (&integers)[8], int& total) {
  unsigned packed[2] = {};
  for (int i = 0; i < 8; ++i) {
    packed[i / 4] |= (integers[i] & 0xFF) << 8 * (i % 4);
    total += integers[i];
  }
  return make_uint2(packed[0], packed[1]);
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

/// What a lane takes of an activation block: eight weights of a quarter in their order.
template <int axis, class T>
__device__ __forceinline__ void load_lane(const T* x, const float* input_scales, int row, int block,
                                          int inputs, float (&values)[8]) {
  const int lane = threadIdx.x % lanes;
  for (int i = 0; i < 8; ++i) {
    const int input = block * block_weights + input_of<axis>(lane / 8, lane % 8 * 8 + i);
    values[i] = activation<axis>(x, input_scales, row, input, inputs);
  }
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
  load_lane<axis>(x, input_scales, row, block, inputs, values);
  int parts[planes][8];
  const float scale = quantize<planes>(values, parts);
  const int within = row % group_rows;
  const int columns = group_rows * planes;
  const long long at = static_cast<long long>(row / group_rows) * blocks + block;
  for (int plane = 0; plane < planes; ++plane) {
    int total = 0;
    const uint2 packed = pack_bytes(parts[plane], total);
    const int column = within * planes + plane;
    const long long place =
        ((at * 4 + first_j / 16) * columns + column) * 64 + quarter * 16 + first_j % 16;
    *reinterpret_cast<uint2*>(bytes + place) = packed;
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

#endif

/// Each byte of a word four times.
__device__ __forceinline__ uint4 repeat_bytes(unsigned word) {
  return make_uint4(__byte_perm(word, 0, 0x0000), __byte_perm(word, 0, 0x1111),
                    __byte_perm(word, 0, 0x2222), __byte_perm(word, 0, 0x3333));
}

/// Codes on their way to a warp: each stage is `rows` lines of a coded matrix, together 128 * bits
/// words, which the warp's lanes copy in pieces of 16 bytes and find in shared memory with lines
/// `line_words` apart. A stage is asked for well before its use, so registers hold codes in use
/// alone. One warp owns a ring; `memory` has `bytes(stages)`.
template <int bits, int rows, int line_words, int stages>
class CodeRing {
 public:
  static constexpr int stage_bytes = rows * line_words * 4;
  static constexpr int bytes = stages * stage_bytes;

  /// `row_bytes`: from one line to the next in the matrix.
  __device__ CodeRing(const char* memory, unsigned row_bytes) : memory_(memory) {
    const int lane = threadIdx.x % lanes;
#pragma unroll
    for (int i = 0; i < bits; ++i) {
      const int piece = lane + lanes * i;
      const int row = piece / row_pieces;
      const int within = piece % row_pieces;
      from_[i] = row * row_bytes + within * 16;
      to_[i] = row * line_words * 4 + within * 16;
    }
  }

  /// Asks for the next stage: lines from `from` on, of which `valid_rows` and in each
  /// `valid_bytes` are there; the rest keeps what it holds.
  __device__ __forceinline__ void fetch(const char* from, int valid_rows, int valid_bytes) {
    const unsigned to = shared_address(memory_ + next_ * stage_bytes);
    if (valid_rows >= rows && valid_bytes >= row_pieces * 16) {
#pragma unroll
      for (int i = 0; i < bits; ++i) {
        copy(to + to_[i], from + from_[i]);
      }
    } else {
      for (int i = 0; i < bits; ++i) {
        const int piece = threadIdx.x % lanes + lanes * i;
        if (piece / row_pieces < valid_rows && piece % row_pieces * 16 < valid_bytes) {
          copy(to + to_[i], from + from_[i]);
        }
      }
    }
    end_fetch();
  }

  /// In the place of `fetch` where nothing is left to ask for.
  __device__ __forceinline__ void end_fetch() {
    asm volatile("cp.async.commit_group;" ::: "memory");
    next_ = next_ + 1 == stages ? 0 : next_ + 1;
  }

  /// The words of the oldest stage, once they are there. `stages` - 1 have been asked for before
  /// the first call, one more after each.
  __device__ __forceinline__ const unsigned* wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(stages - 2) : "memory");
    __syncwarp();
    const char* stage = memory_ + current_ * stage_bytes;
    current_ = current_ + 1 == stages ? 0 : current_ + 1;
    return reinterpret_cast<const unsigned*>(stage);
  }

 private:
  static constexpr int row_pieces = lanes * bits / rows;

  __device__ __forceinline__ static void copy(unsigned to, const char* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
  }

  const char* memory_;
  unsigned from_[bits];
  int to_[bits];
  int next_ = 0;
  int current_ = 0;
};

/// A lane's own words and the one behind them, which may lie before them: trellis blocks wrap.
template <int words>
__device__ __forceinline__ void read_words(const unsigned* own, const unsigned* next,
                                           unsigned (&to)[words + 1]) {
  if constexpr (words % 4 == 0) {
    for (int i = 0; i < words; i += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(own + i);
      to[i] = four.x;
      to[i + 1] = four.y;
      to[i + 2] = four.z;
      to[i + 3] = four.w;
    }
  } else if constexpr (words % 2 == 0) {
    for (int i = 0; i < words; i += 2) {
      const uint2 two = *reinterpret_cast<const uint2*>(own + i);
      to[i] = two.x;
      to[i + 1] = two.y;
    }
  } else {
    for (int i = 0; i < words; ++i) {
      to[i] = own[i];
    }
  }
  to[words] = *next;
}

/// Where part `index` of `count` begins when `total` is shared evenly; their product fits 32 bits,
/// whose division takes a tenth of the time of 64.
__device__ __forceinline__ int share(int total, int index, int count) {
  return static_cast<int>(static_cast<unsigned>(total) * static_cast<unsigned>(index) /
                          static_cast<unsigned>(count));
}

/// Makes integers of activation blocks of one row x, a warp one block after another: a lane takes
/// inputs 32 i + lane of it, zero past the last. `block_of(n)` names the n-th of `count` blocks.
/// Values are asked for before any codes: behind those they would wait for 2 us.
template <int axis, class T, class BlockOf>
class RowBlocks {
 public:
  __device__ RowBlocks(const T* x, const float* input_scales, int inputs, int count,
                       BlockOf block_of)
      : x_(x), input_scales_(input_scales), inputs_(inputs), count_(count), block_of_(block_of) {
    load(threadIdx.x / lanes);
  }

  /// What becomes of the blocks goes to `store(n, i, integer)`, centers and scales.
  template <int planes, class Store>
  __device__ __forceinline__ void prepare(int* centers, float* scales, Store store) {
    const int warps = blockDim.x / lanes;
    for (int first = threadIdx.x / lanes; first < count_; first += ahead * warps) {
      if (first >= ahead * warps) {
        load(first);
      }
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const int n = first + k * warps;
        if (n >= count_) {
          break;
        }
        int integers[8];
        const float scale = to_integers<planes>(values_[k], integers);
        int total = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          store(n, i, integers[i]);
          total += integers[i];
        }
        total = __reduce_add_sync(~0u, total);
        if (threadIdx.x % lanes == 0) {
          centers[n] = -byte_offset * total;
          scales[n] = scale;
        }
      }
    }
  }

 private:
  static constexpr int ahead = 5;

  __device__ __forceinline__ void load(int first) {
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const int n = first + k * (blockDim.x / lanes);
      const int input = (n < count_ ? block_of_(n) * block_weights : inputs_) + threadIdx.x % lanes;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        values_[k][i] = activation<axis>(x_, input_scales_, 0, input + lanes * i, inputs_);
      }
    }
  }

  const T* x_;
  const float* input_scales_;
  int inputs_;
  int count_;
  BlockOf block_of_;
  float values_[ahead][8];
};

/// An integer of an activation as it lies in shared memory.
template <int planes>
struct RowInteger {
  using type = signed char;
  /// A lane's 32 from `from` on, each byte four times as `add_bytes` takes it.
  __device__ static void load(const type* from, unsigned (&to)[32]) {
    const auto* words = reinterpret_cast<const unsigned*>(from);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint4 four = repeat_bytes(words[i]);
      to[4 * i] = four.x;
      to[4 * i + 1] = four.y;
      to[4 * i + 2] = four.z;
      to[4 * i + 3] = four.w;
    }
  }
};

template <>
struct RowInteger<2> {
  using type = short;
  __device__ static void load(const type* from, unsigned (&to)[32]) {
    const auto* words = reinterpret_cast<const int*>(from);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      to[2 * i] = words[i] << 16 >> 16;
      to[2 * i + 1] = words[i] >> 16;
    }
  }
};

/// sum += a weight's centered byte sum times an activation: one that is a byte, four times, with
/// the center left out, or a whole one.
template <int planes>
__device__ __forceinline__ void add_product(int& sum, unsigned weight, unsigned activation) {
  if constexpr (planes == 1) {
    add_bytes(sum, weight, activation);
  } else {
    int bytes = -byte_offset;
    add_bytes(bytes, weight, 0x01010101u);
    sum += bytes * static_cast<int>(activation);
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
