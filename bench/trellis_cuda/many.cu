// The products of many rows under plain names, one for each of the variants that the bench times.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/trellis_cuda.cuh"
#include "kernels/trellis_expand_cuda.cuh"
#include "kernels/trellis_many_cuda.cuh"

using namespace espalier;

#define PREPARE(name, axis, numeric, columns, input, type)                                         \
  extern "C" __global__ void name(const input* x, const float* input_scales, int rows, int inputs, \
                                  type* tiles, float* scales) {                                    \
    prepare_tiles<axis, Numeric::numeric, columns>(x, input_scales, rows, inputs, tiles, scales);  \
  }
#define MANY(bits, axis, numeric, columns, output)                                      \
  extern "C" __global__ void __launch_bounds__(tile_threads, 1)                         \
      many_##bits##_##axis##_##numeric##_##columns(                                     \
          const unsigned short* tiles, const float* scales, const unsigned* codes,      \
          const float* weight_scales, int rows, int inputs, int outputs, output* out) { \
    multiply_tile<Trellis<bits, 12, 0>, axis, Numeric::numeric, columns>(               \
        tiles, scales, codes, weight_scales, rows, inputs, outputs, out);               \
  }
#define AXIS(axis)                                                                  \
  PREPARE(tiles_##axis##_int8_128, axis, int8, 128, float, __half)                  \
  PREPARE(tiles_##axis##_int8_176, axis, int8, 176, float, __half)                  \
  PREPARE(tiles_##axis##_int15_192, axis, int15, 192, float, __half)                \
  PREPARE(tiles_##axis##_int15_256, axis, int15, 256, float, __half)                \
  PREPARE(tiles_##axis##_reference_176, axis, reference, 176, float, __nv_bfloat16) \
  PREPARE(tiles_##axis##_reference_256, axis, reference, 256, float, __nv_bfloat16) \
  MANY(3, axis, int8, 128, float)                                                   \
  MANY(3, axis, int8, 176, float)                                                   \
  MANY(3, axis, int15, 192, float)                                                  \
  MANY(3, axis, int15, 256, float)                                                  \
  MANY(3, axis, reference, 176, unsigned short)                                     \
  MANY(3, axis, reference, 256, unsigned short)
AXIS(1)
AXIS(0)
MANY(2, 1, int8, 176, float)
MANY(4, 1, int8, 176, float)
MANY(4, 0, int15, 192, float)
