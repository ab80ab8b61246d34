// The trellis kernels under plain names, one for each of the variants that the bench times.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/trellis_cuda.cuh"
#include "kernels/trellis_expand_cuda.cuh"
#include "kernels/trellis_inputs_cuda.cuh"
#include "kernels/trellis_outputs_cuda.cuh"

using namespace espalier;

#define PREPARE(name, axis, planes, type)                                                         \
  extern "C" __global__ void name(const type* x, const float* input_scales, int rows, int inputs, \
                                  int group_rows, signed char* bytes, int* sums, float* scales) { \
    prepare<axis, planes, type>(x, input_scales, rows, inputs, group_rows, bytes, sums, scales);  \
  }
PREPARE(prepare_1_1, 1, 1, float)
PREPARE(prepare_1_2, 1, 2, float)
PREPARE(prepare_0_1, 0, 1, float)
PREPARE(prepare_0_2, 0, 2, float)

#ifndef THREADS
#define THREADS 512
#endif

#define ROW_INPUTS(bits, planes)                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) row_inputs_##bits##_##planes(       \
      const float* x, const unsigned* codes, const float* output_scales, int inputs, int outputs, \
      float* out) {                                                                            \
    multiply_row_along_inputs<Trellis<bits, 12, 0>, planes>(x, codes, output_scales, inputs,   \
                                                            outputs, out);                     \
  }
#define COLUMNS_INPUTS(bits, planes, n_tiles)                                                     \
  extern "C" __global__ void __launch_bounds__(THREADS, 1)                                        \
      columns_inputs_##bits##_##planes##_##n_tiles(                                               \
          const signed char* bytes, const int* sums, const float* scales, const unsigned* codes,  \
          const float* output_scales, int rows, int group_rows, int inputs, int outputs,          \
          float* out) {                                                                           \
    multiply_columns_along_inputs<Trellis<bits, 12, 0>, planes, n_tiles>(                         \
        {bytes, sums, scales}, codes, output_scales, rows, group_rows, inputs, outputs, out);     \
  }
#define ROW_OUTPUTS(bits, planes)                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) row_outputs_##bits##_##planes(       \
      const float* x, const float* input_scales, const unsigned* codes, int inputs, int outputs, \
      float* partial) {                                                                         \
    multiply_row_along_outputs<Trellis<bits, 12, 0>, planes>(x, input_scales, codes, inputs,    \
                                                             outputs, partial);                 \
  }
#define COLUMNS_OUTPUTS(bits, planes)                                                        \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) columns_outputs_##bits##_##planes( \
      const signed char* bytes, const int* sums, const float* scales, const unsigned* codes, \
      int rows, int group_rows, int inputs, int outputs, float* partial) {                   \
    multiply_columns_along_outputs<Trellis<bits, 12, 0>, planes>(                            \
        {bytes, sums, scales}, codes, rows, group_rows, inputs, outputs, partial);           \
  }
#define BITS(bits)           \
  ROW_INPUTS(bits, 1)        \
  ROW_INPUTS(bits, 2)        \
  COLUMNS_INPUTS(bits, 1, 1) \
  COLUMNS_INPUTS(bits, 2, 1) \
  COLUMNS_INPUTS(bits, 2, 2) \
  ROW_OUTPUTS(bits, 1)       \
  ROW_OUTPUTS(bits, 2)       \
  COLUMNS_OUTPUTS(bits, 1)   \
  COLUMNS_OUTPUTS(bits, 2)
BITS(2)
BITS(3)
BITS(4)

extern "C" __global__ void add_partial(const float* partial, int blocks, long long count,
                                       float* out) {
  add_products(partial, blocks, count, out);
}

#define EXPAND(name, bits, order, type)                                                         \
  extern "C" __global__ void name(const unsigned* codes, const float* scales, int rows,         \
                                  int blocks, type* out, long long offset) {                    \
    expand<Trellis<bits, 12, 0>, Order::order, type>(codes, scales, rows, blocks, out, offset); \
  }
EXPAND(expand_2_bf16, 2, rows, __nv_bfloat16)
EXPAND(expand_3_bf16, 3, rows, __nv_bfloat16)
EXPAND(expand_4_bf16, 4, rows, __nv_bfloat16)
EXPAND(expand_groups_3_bf16, 3, groups, __nv_bfloat16)
EXPAND(fill_2, 2, rows, __half)
EXPAND(fill_3, 3, rows, __half)
EXPAND(fill_4, 4, rows, __half)
EXPAND(fill_pairs_3, 3, pairs, __half)
