#include "kernels/trellis_device.h"

#include <stdexcept>

#include "kernels/trellis_cuda.h"
#include "kernels/trellis_metal.h"

namespace espalier::kernels {

namespace mx = mlx::core;

mx::array trellis_words(const TrellisMatrix& weight) {
  const int words = trellis_block_words(weight.format.bits);
  const bool along_inputs = weight.format.axis == 1;
  const int first = along_inputs ? weight.rows : weight.rows / trellis_block_weights;
  const int second = along_inputs ? weight.columns / trellis_block_weights : weight.columns;
  // Codes are kept in lines of bytes, with some behind them that fill the last.
  const mx::array all =
      mx::flatten(mx::view(weight.codes, mx::uint32, mx::Device::gpu), mx::Device::gpu);
  const mx::array codes = mx::slice(all, {0}, {first * second * words}, mx::Device::gpu);
  return mx::reshape(codes, {first, second, words}, mx::Device::gpu);
}

mx::array trellis_matrix_of(const mx::array& stored, const TrellisMatrix& weight) {
  if (weight.format.axis == 1) {
    return mx::reshape(stored, {weight.rows, weight.columns}, mx::Device::gpu);
  }
  return mx::transpose(mx::reshape(stored, {weight.columns, weight.rows}, mx::Device::gpu),
                       mx::Device::gpu);
}

std::string trellis_arguments(const TrellisFormat& format) {
  return std::to_string(format.bits) + ", " + std::to_string(format.state_bits) + ", " +
         (format.code == TrellisCode::one_mad ? "0" : "1");
}

std::string trellis_name(const TrellisFormat& format) {
  return std::to_string(format.bits) + "_" + std::to_string(format.state_bits) + "_" +
         (format.code == TrellisCode::one_mad ? "1mad" : "mul1") + "_" +
         std::to_string(format.axis);
}

void require_trellis_rows(const char* function, const mx::array& x, const TrellisMatrix& weight) {
  if (x.ndim() != 2 || x.shape(1) != weight.columns || !mx::issubdtype(x.dtype(), mx::floating)) {
    throw std::invalid_argument(std::string("[") + function +
                                "] expected x [T, K] of floating point numbers");
  }
  if (weight.format.half_bit) {
    throw std::invalid_argument(std::string("[") + function +
                                "] expected trellis blocks of one width");
  }
}

bool runs_on_gpu(const TrellisMatrix& weight) {
  return mx::default_device() == mx::Device::gpu && (has_cuda() || has_metal()) &&
         !weight.format.half_bit;
}

mx::array trellis_linear_gpu(const mx::array& x, const TrellisMatrix& weight,
                             TrellisActivations activations) {
  return has_cuda() ? trellis_linear_cuda(x, weight, activations)
                    : trellis_linear_metal(x, weight, activations);
}

}  // namespace espalier::kernels
