#include "quantization/stored_matrix.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "arrays/tensor_index.h"
#include "base/error.h"
#include "quantization/gguf_decoders.h"
#include "quantization/stored_tensors.h"

namespace espalier::quantization {

using arrays::StorageType;
using arrays::TensorView;

TensorView StoredTensors::take(const std::string& suffix) {
  std::optional<TensorView> tensor = peek(suffix);
  if (!tensor) {
    throw base::LoadError(file_ + ": tensor '" + name(suffix) + "' is missing.");
  }
  used_.push_back(*tensor);
  return *std::move(tensor);
}

TensorView StoredTensors::take(const std::string& suffix, const std::vector<std::int64_t>& shape) {
  TensorView tensor = take(suffix);
  check(tensor.shape == shape, suffix,
        "has shape " + arrays::to_string(tensor.shape) + ", expected " + arrays::to_string(shape));
  return tensor;
}

TensorView StoredTensors::take(const std::string& suffix, StorageType type,
                               const std::vector<std::int64_t>& shape) {
  TensorView tensor = take(suffix, shape);
  check(tensor.type == type, suffix,
        "has type " + std::string(arrays::storage_traits(tensor.type).name) + ", expected " +
            std::string(arrays::storage_traits(type).name));
  return tensor;
}

void StoredTensors::skip(const std::string& suffix) {
  if (const std::optional<TensorView> tensor = peek(suffix)) {
    used_.push_back(*tensor);
  }
}

void StoredTensors::fail(const std::string& suffix, const std::string& reason) const {
  throw base::LoadError(file_ + ": tensor '" + name(suffix) + "' " + reason + ".");
}

int StoredTensors::group_of(const std::string& suffix, std::int64_t groups) const {
  check(groups > 0 && columns_ % groups == 0 && columns_ / groups % 32 == 0, suffix,
        "has " + std::to_string(groups) + " scales a row for " + std::to_string(columns_) +
            " inputs, expected one for each so many times 32");
  return static_cast<int>(columns_ / groups);
}

float float_element(const TensorView& tensor, std::int64_t index) {
  switch (tensor.type) {
    case StorageType::f16:
      return half_to_float(element<std::uint16_t>(tensor, index));
    case StorageType::bf16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(element<std::uint16_t>(tensor, index))
                                  << 16U);
    default:
      return element<float>(tensor, index);
  }
}

std::optional<kernels::ScaleType> scale_type(StorageType type) {
  switch (type) {
    case StorageType::f16:
      return kernels::ScaleType::f16;
    case StorageType::bf16:
      return kernels::ScaleType::bf16;
    case StorageType::f32:
      return kernels::ScaleType::f32;
    default:
      return std::nullopt;
  }
}

void unpack_bits(const std::uint8_t* bytes, int bits, int count, std::uint8_t* codes) {
  std::uint32_t window = 0;
  int held = 0;
  for (int i = 0; i < count; ++i) {
    for (; held < bits; held += 8) {
      window |= static_cast<std::uint32_t>(*bytes++) << held;
    }
    codes[i] = static_cast<std::uint8_t>(window & ((1U << bits) - 1));
    window >>= bits;
    held -= bits;
  }
}

std::optional<kernels::BandType> affine_type(int bits) {
  using kernels::BandType;
  switch (bits) {
    case 2:
      return BandType::affine2;
    case 3:
      return BandType::affine3;
    case 4:
      return BandType::affine4;
    case 5:
      return BandType::affine5;
    case 6:
      return BandType::affine6;
    case 8:
      return BandType::affine8;
    default:
      return std::nullopt;
  }
}

std::optional<MlxScheme> configured_scheme(const StoredTensors& tensors) {
  const auto& modules = tensors.schemes().mlx_modules;
  const auto module = modules.find(tensors.path());
  return module != modules.end() ? module->second : tensors.schemes().mlx;
}

namespace {

/// The scheme that a matrix's tensors show, or the configuration where they do not: codes of a
/// trellis look like MLX's.
StoredMatrix find_scheme(StoredTensors& tensors) {
  using Method = WeightSchemes::Method;
  if (const std::optional<MlxScheme> scheme = configured_scheme(tensors);
      scheme && scheme->trellis) {
    return find_trellis(tensors, *scheme->trellis);
  }
  if (tensors.contains("qweight")) {
    return tensors.schemes().method == Method::awq ? find_awq(tensors) : find_gptq(tensors);
  }
  if (tensors.contains("weight_packed")) {
    return find_compressed(tensors);
  }
  const std::optional<TensorView> weight = tensors.peek("weight");
  if (weight && weight->type == StorageType::u32) {
    return find_mlx(tensors);
  }
  if (weight && (weight->type == StorageType::f8_e4m3 || weight->type == StorageType::f8_e5m2)) {
    return find_fp8(tensors);
  }
  if (weight && weight->type == StorageType::i8) {
    return find_int8(tensors);
  }
  if (weight && weight->type == StorageType::u8) {
    return tensors.contains("weight_scale") ? find_nvfp4(tensors) : find_nf4(tensors);
  }
  return {.whole = tensors.take("weight", {tensors.rows(), tensors.columns()})};
}

}  // namespace

StoredMatrix find_matrix(const TensorLookup& lookup, const WeightSchemes& schemes,
                         const std::string& file, const std::string& path, int rows, int columns) {
  StoredTensors tensors(lookup, schemes, file, path, rows, columns);
  StoredMatrix matrix = find_scheme(tensors);
  if (!matrix.whole && !matrix.trellis && columns % kernels::block_inputs != 0) {
    tensors.fail("weight", "is quantized, but has " + std::to_string(columns) +
                               " inputs, expected a multiple of 32");
  }
  matrix.tensors = tensors.used();
  return matrix;
}

}  // namespace espalier::quantization
