// Products of few rows with weights coded along outputs (axis 0) on CUDA: matrices of codes
// [outputs / 256, inputs, words].
#ifndef ESPALIER_TRELLIS_CUDA
#include "kernels/trellis_cuda.cuh"
#endif

namespace espalier {

/// The sums of an eighth of a trellis block lie behind one another in shared memory; eighths and
/// columns are apart by numbers that spread what a warp adds or reads at once over the banks.
constexpr int eighth_stride = lanes + 4;
constexpr int column_stride = 8 * eighth_stride + 1;

/// Adds the sums of a lane's 32 weights to those of the three other lanes that decoded the same
/// weights of other inputs, and all to `target`.
__device__ __forceinline__ void add_quarters(int (&total)[16][2], int* target) {
  const int quarter = threadIdx.x % 4;
  // Each lane of a pair keeps every other weight, each of four every fourth.
  int half[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int even = total[i][0];
    const int odd = total[i][1];
    half[i] = (quarter & 2 ? odd : even) + __shfl_xor_sync(~0u, quarter & 2 ? even : odd, 2);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int sum = (quarter & 1 ? half[2 * i + 1] : half[2 * i]) +
                    __shfl_xor_sync(~0u, quarter & 1 ? half[2 * i] : half[2 * i + 1], 1);
    atomicAdd(target + 4 * i + 2 * (quarter & 1) + quarter / 2, sum);
  }
}

/// Inputs of a task of a warp: a lane decodes an eighth of the trellis blocks of every fourth.
constexpr int task_inputs = 16;
constexpr int unit_tasks = block_weights / task_inputs;

/// The units of a thread block: one output group of 256 and one activation block each, those of a
/// group behind one another.
struct OutputUnits {
  int first;
  int count;
  int blocks;

  __device__ OutputUnits(int inputs, int outputs)
      : blocks((inputs + block_weights - 1) / block_weights) {
    const int all = outputs / block_weights * blocks;
    first = share(all, blockIdx.x, gridDim.x);
    count = share(all, blockIdx.x + 1, gridDim.x) - first;
  }
  __device__ int group(int unit) const { return (first + unit) / blocks; }
  __device__ int block(int unit) const { return (first + unit) % blocks; }
};

/// A task and where it lies, for tasks one after the other.
struct TaskCursor {
  int task;
  int unit;
  int group;
  int block;

  __device__ TaskCursor(const OutputUnits& units, int first_task)
      : task(first_task),
        unit(first_task / unit_tasks),
        group(units.group(unit)),
        block(units.block(unit)) {}
  __device__ __forceinline__ void advance(const OutputUnits& units) {
    if (++task % unit_tasks == 0) {
      ++unit;
      if (++block == units.blocks) {
        block = 0;
        ++group;
      }
    }
  }
};

/// What the integer sums of units are of: the row whose integers are in shared memory, or columns
/// of `Activations`. The sums of a row of 15 bits take two columns, their upper and their lower
/// halves of 32 bits.
struct UnitColumns {
  const void* integers;  // of the units' own row: [units, 4, 4 quarters, 16], or null
  Activations activations;
  int columns;
  int group_rows;
};

/// The sums [units, columns] of a thread block's units in shared memory, to which warps add those
/// of their tasks. `row_planes`: 1 for one row of int8 by four-byte products, 2 for one of 15 bits
/// by whole ones, 0 for up to eight columns by matrix instructions.
template <class Format, int row_planes>
struct OutputSums {
  static constexpr bool single = row_planes > 0;
  static constexpr int bits = Format::bits;
  // Lines of a ring are apart by what spreads a warp's reads over the banks.
  static constexpr int line_words = bits == 4 ? 40 : 24;
  using Ring = CodeRing<bits, task_inputs, line_words, single ? 3 : 2>;

  /// From one unit's sums to the next.
  __device__ static int unit_stride(int columns) {
    return (single ? columns : (columns + 1) / 2 * 2) * column_stride;
  }
  /// Of several columns the even ones come first: a lane adds to one of each.
  __device__ static int column_place(int column, int columns) {
    return (column / 2 + column % 2 * ((columns + 1) / 2)) * column_stride;
  }

  /// `meanwhile()` is called while the first codes are on their way.
  template <class Meanwhile>
  __device__ static void add(const OutputUnits& units, const UnitColumns& x, const unsigned* codes,
                             int inputs, char* rings, int* sums, Meanwhile meanwhile) {
    const int lane = threadIdx.x % lanes;
    const int eighth = lane / 4;
    const int quarter = lane % 4;
    const int warp = threadIdx.x / lanes;
    const int warps = blockDim.x / lanes;
    const int first_task = share(units.count * unit_tasks, warp, warps);
    const int end_task = share(units.count * unit_tasks, warp + 1, warps);
    Ring ring(rings + warp * Ring::bytes, Format::block_words * 4);
    TaskCursor fetched(units, first_task);
    const auto fetch = [&] {
      if (fetched.task >= end_task) {
        ring.end_fetch();
        return;
      }
      const int input = fetched.block * block_weights + fetched.task % unit_tasks * task_inputs;
      ring.fetch(reinterpret_cast<const char*>(
                     codes + (static_cast<long long>(fetched.group) * inputs + input) *
                                 Format::block_words),
                 inputs - input, Format::block_words * 4);
      fetched.advance(units);
    };
    fetch();
    if constexpr (single) {
      fetch();
    }
    meanwhile();
    __syncthreads();

    const int column = min(eighth, x.columns - 1);
    TaskCursor loaded(units, first_task);
    // A lane's four integers of a task: bytes, or two pairs of 16 bits.
    struct Integers {
      unsigned words[row_planes == 2 ? 2 : 1];
    };
    const auto load_integers = [&] {
      const int within = loaded.task % unit_tasks;  // four tasks share 16 integers of a lane
      Integers integers;
      if constexpr (single) {
        const int place = ((loaded.unit * 4 + within / 4) * 4 + quarter) * 4 + within % 4;
        integers = static_cast<const Integers*>(x.integers)[place];
      } else {
        const int block = static_cast<int>(blockIdx.y) * units.blocks + loaded.block;
        integers.words[0] =
            __ldg(reinterpret_cast<const unsigned*>(x.activations.bytes) +
                  (((block * 4 + within / 4) * x.columns + column) * 4 + quarter) * 4 + within % 4);
      }
      loaded.advance(units);
      return integers;
    };
    Integers next{};
    if (first_task < end_task) {
      next = load_integers();
    }
    // Of weights 2 tile and 2 tile + 1 of the lane's eighth.
    int total[16][single ? 2 : 4] = {};
    for (int task = first_task; task < end_task; ++task) {
      const unsigned* words = ring.wait();
      fetch();
      const Integers integers = next;
      if (task + 1 < end_task) {
        next = load_integers();
      }
      // Inputs 8 step + quarter and 8 step + 4 + quarter.
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        unsigned string[2][bits + 1];
        for (int half = 0; half < 2; ++half) {
          const unsigned* line = words + (8 * step + 4 * half + quarter) * line_words;
          read_words<bits>(line + eighth * bits, line + ((eighth + 1) & 7) * bits, string[half]);
        }
        unsigned b0;
        unsigned b1;
        if constexpr (row_planes == 2) {
          b0 = static_cast<int>(integers.words[step] << 16) >> 16;
          b1 = static_cast<int>(integers.words[step]) >> 16;
        } else {
          b0 = __byte_perm(integers.words[0], 0, step == 0 ? 0x0000 : 0x2222);
          b1 = __byte_perm(integers.words[0], 0, step == 0 ? 0x1111 : 0x3333);
        }
#pragma unroll
        for (int tile = 0; tile < 16; ++tile) {
          const unsigned a0 = hash<Format>(string[0], 2 * tile * bits);
          const unsigned a1 = hash<Format>(string[0], (2 * tile + 1) * bits);
          const unsigned a2 = hash<Format>(string[1], 2 * tile * bits);
          const unsigned a3 = hash<Format>(string[1], (2 * tile + 1) * bits);
          if constexpr (single) {
            add_product<row_planes>(total[tile][0], a0, b0);
            add_product<row_planes>(total[tile][1], a1, b0);
            add_product<row_planes>(total[tile][0], a2, b1);
            add_product<row_planes>(total[tile][1], a3, b1);
          } else {
            multiply_bytes(total[tile], a0, a1, a2, a3, b0, b1);
          }
        }
      }
      if (task + 1 == end_task || (task + 1) % unit_tasks == 0) {
        flush(total, x.columns,
              sums + task / unit_tasks * unit_stride(x.columns) + eighth * eighth_stride);
      }
    }
    __syncthreads();
  }

 private:
  __device__ __forceinline__ static void flush(int (&total)[16][single ? 2 : 4], int columns,
                                               int* target) {
    if constexpr (row_planes == 2) {
      // Four lanes' sums of 64 inputs may exceed 32 bits.
      int low[16][2];
      for (int i = 0; i < 32; ++i) {
        low[i / 2][i % 2] = total[i / 2][i % 2] & 0xFFFF;
        total[i / 2][i % 2] >>= 16;
      }
      add_quarters(total, target);
      add_quarters(low, target + column_stride);
    } else if constexpr (single) {
      add_quarters(total, target);
    } else {
      for (int second = 0; second < 2; ++second) {
        const int at = 2 * (threadIdx.x % 4) + second;
        if (at < columns) {
#pragma unroll
          for (int j = 0; j < lanes; ++j) {
            atomicAdd(target + column_place(at, columns) + j,
                      second == 0 ? total[j / 2][j % 2 * 2] : total[j / 2][j % 2 * 2 + 1]);
          }
        }
      }
    }
    for (auto& sums : total) {
      for (int& sum : sums) {
        sum = 0;
      }
    }
  }
};

/// Where the sum of this thread's output of 256 lies.
__device__ __forceinline__ int own_sum_place() {
  const int from_end = 255 - static_cast<int>(threadIdx.x) % block_weights;
  return from_end / lanes * eighth_stride + from_end % lanes;
}

__device__ __forceinline__ void clear(int* sums, int count) {
  for (int i = threadIdx.x; i < count / 4; i += blockDim.x) {
    reinterpret_cast<uint4*>(sums)[i] = make_uint4(0, 0, 0, 0);
  }
  if (threadIdx.x < count % 4) {
    sums[count / 4 * 4 + threadIdx.x] = 0;
  }
}

/// The product of one row x [inputs] with weights coded along outputs, as products per activation
/// block: partial [activation blocks, outputs], to be added by `add_products`.
template <class Format, int planes, class T>
__device__ void multiply_row_along_outputs(const T* x, const float* input_scales,
                                           const unsigned* codes, int inputs, int outputs,
                                           float* partial) {
  using Sums = OutputSums<Format, planes>;
  using Integer = typename RowInteger<planes>::type;
  extern __shared__ uint4 shared[];
  const OutputUnits units(inputs, outputs);
  const auto block_of = [&](int unit) { return units.block(unit); };
  RowBlocks<0, T, decltype(block_of)> row(x, input_scales, inputs, units.count, block_of);
  const int lane = threadIdx.x % lanes;
  char* rings = reinterpret_cast<char*>(shared);
  auto* integers = reinterpret_cast<Integer*>(rings + blockDim.x / lanes * Sums::Ring::bytes);
  int* sums = reinterpret_cast<int*>(integers + units.count * block_weights);
  int* centers = sums + units.count * Sums::unit_stride(planes);
  float* scales = reinterpret_cast<float*>(centers + units.count);

  const auto prepare = [&] {
    // Place 64 part + 16 quarter + 2 step + half of a unit's integers is input 64 part + 8 step +
    // 4 half + quarter.
    const int place = lane % 4 * 16 + lane / 8 * 2 + lane / 4 % 2;
    row.template prepare<planes>(centers, scales, [&](int unit, int i, int integer) {
      integers[unit * block_weights + i / 2 * 64 + i % 2 * 8 + place] = integer;
    });
    clear(sums, units.count * Sums::unit_stride(planes));
  };
  Sums::add(units, {integers, {}, planes, 1}, codes, inputs, rings, sums, prepare);
  for (int unit = threadIdx.x / block_weights; unit < units.count;
       unit += blockDim.x / block_weights) {
    const int* from = sums + unit * Sums::unit_stride(planes) + own_sum_place();
    const float exact = planes == 1 ? __int2float_rn(from[0] + centers[unit])
                                    : __fmaf_rn(__int2float_rn(from[0]), 65536.0f,
                                                __int2float_rn(from[(planes - 1) * column_stride]));
    partial[static_cast<long long>(units.block(unit)) * outputs +
            units.group(unit) * block_weights + threadIdx.x % block_weights] =
        __fmul_rn(exact, scales[unit]);
  }
}

/// The same for rows of `activations`: partial [activation blocks, rows, outputs]. Grid: x parts of
/// the units, y row groups of at most 8 columns.
template <class Format, int planes>
__device__ void multiply_columns_along_outputs(const Activations& activations,
                                               const unsigned* codes, int rows, int group_rows,
                                               int inputs, int outputs, float* partial) {
  using Sums = OutputSums<Format, 0>;
  extern __shared__ uint4 shared[];
  const OutputUnits units(inputs, outputs);
  int columns = group_rows * planes;
  // That it is even is hidden: sums of both columns of a pair would be added at once, for which
  // there are too few registers.
  asm("" : "+r"(columns));
  char* rings = reinterpret_cast<char*>(shared);
  int* sums = reinterpret_cast<int*>(rings + blockDim.x / lanes * Sums::Ring::bytes);
  int* centers = sums + units.count * Sums::unit_stride(columns);
  float* scales = reinterpret_cast<float*>(centers + units.count * columns);
  const auto prepare = [&] {
    const int first_block = static_cast<int>(blockIdx.y) * units.blocks;
    for (int i = threadIdx.x; i < units.count * columns; i += blockDim.x) {
      const int block = first_block + units.block(i / columns);
      const int column = i % columns;
      centers[i] = -byte_offset * activations.sums[block * columns + column];
      if (column % planes == 0) {
        scales[i / planes] = activations.scales[block * group_rows + column / planes];
      }
    }
    clear(sums, units.count * Sums::unit_stride(columns));
  };
  Sums::add(units, {nullptr, activations, columns, group_rows}, codes, inputs, rings, sums,
            prepare);
  // A warp takes a row of a unit, so it reads what these share once.
  const int first_row = blockIdx.y * group_rows;
  const int count = min(group_rows, rows - first_row);
  const int lane = threadIdx.x % lanes;
#pragma unroll 1
  for (int task = threadIdx.x / lanes; task < units.count * count; task += blockDim.x / lanes) {
    const int unit = task / count;
    const int row = task % count;
    const int* center = centers + unit * columns + row * planes;
    const float scale = scales[unit * group_rows + row];
    const int* from = sums + unit * Sums::unit_stride(columns) + lanes - 1 - lane;
    const int* first = from + Sums::column_place(row * planes, columns);
    const int* second = from + Sums::column_place(row * planes + planes - 1, columns);
    float* to = partial +
                (static_cast<long long>(units.block(unit)) * rows + first_row + row) * outputs +
                units.group(unit) * block_weights + lane;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = (7 - i) * eighth_stride;
      to[lanes * i] = scaled_sum<planes>(first[at] + center[0],
                                         planes == 2 ? second[at] + center[planes - 1] : 0, scale);
    }
  }
}

}  // namespace espalier
