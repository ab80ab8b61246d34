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
#define VARIANT(axis, numeric, columns, type, output)                                \
  PREPARE(tiles_##axis##_##numeric##_##columns, axis, numeric, columns, float, type) \
  MANY(3, axis, numeric, columns, output)
#define AXIS(axis)                                             \
  VARIANT(axis, int8, 128, __half, float)                      \
  VARIANT(axis, int8, 176, __half, float)                      \
  VARIANT(axis, int15, 176, __half, float)                     \
  VARIANT(axis, int15, 256, __half, float)                     \
  VARIANT(axis, reference, 176, __nv_bfloat16, unsigned short) \
  VARIANT(axis, reference, 256, __nv_bfloat16, unsigned short) \
  MANY(2, axis, int8, 176, float)                              \
  MANY(4, axis, int8, 176, float)                              \
  MANY(2, axis, int15, 256, float)                             \
  MANY(4, axis, int15, 256, float)
AXIS(1)
AXIS(0)
