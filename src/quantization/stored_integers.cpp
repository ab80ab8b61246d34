// 4-bit and other integers with zero points that are integers too: GPTQ, AWQ, compressed-tensors.
// scale * (code - zero) becomes scale * code + minimum with minimum = -(scale * zero), which f32
// holds exactly for scales of 16 bits.
#include "arrays/tensor_index.h"
#include "quantization/stored_tensors.h"

namespace espalier::quantization {
namespace {

using arrays::StorageType;
using arrays::TensorView;
using kernels::BlockCodes;

/// Number `index` of a stream of numbers of `bits` bits in words that lie `stride` apart.
std::uint32_t number_at(const TensorView& words, std::int64_t first, std::int64_t stride, int bits,
                        std::int64_t index) {
  const std::int64_t bit = index * bits;
  const std::int64_t word = first + bit / 32 * stride;
  std::uint64_t value = element<std::uint32_t>(words, word);
  if (bit % 32 + bits > 32) {
    value |= static_cast<std::uint64_t>(element<std::uint32_t>(words, word + stride)) << 32U;
  }
  return static_cast<std::uint32_t>(value >> (bit % 32)) & ((1U << bits) - 1);
}

/// A matrix whose codes, scales and zero points functions of row and column give.
template <class Code, class Scale, class Zero>
StoredMatrix make_affine(const StoredTensors& tensors, const std::string& suffix, int bits,
                         int group, Code code, Scale scale, Zero zero) {
  const auto band = affine_type(bits);
  tensors.check(band.has_value(), suffix,
                "has " + std::to_string(bits) + " bits, expected 2, 3, 4, 5, 6 or 8");
  const int blocks = group / kernels::block_inputs;
  return {.layout = {*band, {.scale = kernels::ScaleType::f32, .minimum = true, .blocks = blocks}},
          .read =
              [=](int row, int first, int count, BlockCodes* result) {
                for (int i = 0; i < count; ++i) {
                  const int block = first + i;
                  const float own = scale(row, block / blocks);
                  const float minimum = -own * zero(row, block / blocks);
                  std::memcpy(result[i].scale, &own, sizeof own);
                  std::memcpy(result[i].minimum, &minimum, sizeof minimum);
                  for (int k = 0; k < kernels::block_inputs; ++k) {
                    const std::uint32_t value = code(row, block * kernels::block_inputs + k);
                    result[i].codes[k] =
                        static_cast<std::uint8_t>(value ^ (bits == 8 ? 0x80U : 0U));
                  }
                }
              },
          .activations = kernels::ActivationFormat::int15};
}

/// Throws `LoadError` where the configuration says other bits or another group.
void check_stated(const StoredTensors& tensors, const std::string& suffix, int bits, int group) {
  const std::optional<MlxScheme> stated = configured_scheme(tensors);
  if (!stated) {
    return;
  }
  const bool same_group =
      stated->group <= 0 || stated->group == group || stated->group > tensors.columns();
  tensors.check(stated->bits == bits && same_group, suffix,
                "is stored in " + std::to_string(bits) + " bits in groups of " +
                    std::to_string(group) + ", but the configuration says " +
                    std::to_string(stated->bits) + " bits" +
                    (same_group ? "" : " in groups of " + std::to_string(stated->group)));
}

/// Throws `LoadError` unless inputs are grouped in their own order.
void check_order(StoredTensors& tensors, const std::string& suffix, int group) {
  if (!tensors.contains(suffix)) {
    return;
  }
  const TensorView order = tensors.take(suffix, StorageType::i32, {tensors.columns()});
  for (int k = 0; k < tensors.columns(); ++k) {
    tensors.check(element<std::int32_t>(order, k) == k / group, suffix,
                  "groups inputs in another order (act-order), which is not supported");
  }
}

bool is_matrix(const TensorView& tensor, std::int64_t columns) {
  return tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] == columns;
}

TensorView take_scales(StoredTensors& tensors, const std::string& suffix) {
  const TensorView scales = tensors.take(suffix);
  tensors.check(scales.shape.size() == 2 && scale_type(scales.type).has_value(), suffix,
                "is not a matrix of f32, f16 or bf16 numbers");
  return scales;
}

}  // namespace

StoredMatrix find_gptq(StoredTensors& tensors) {
  const std::int64_t rows = tensors.rows();
  const std::int64_t columns = tensors.columns();
  const TensorView codes = tensors.take("qweight");
  tensors.check(codes.type == StorageType::i32 && is_matrix(codes, rows) &&
                    codes.shape[0] * 32 % columns == 0,
                "qweight",
                "has shape " + arrays::to_string(codes.shape) + ", expected i32 words for " +
                    std::to_string(columns) + " inputs of " + std::to_string(rows) + " outputs");
  const auto bits = static_cast<int>(codes.shape[0] * 32 / columns);
  const TensorView scales = take_scales(tensors, "scales");
  tensors.check(is_matrix(scales, rows), "scales",
                "has shape " + arrays::to_string(scales.shape) +
                    ", expected a column for each of " + std::to_string(rows) + " outputs");
  const int group = tensors.group_of("scales", scales.shape[0]);
  check_stated(tensors, "qweight", bits, group);
  const TensorView zeros =
      tensors.take("qzeros", StorageType::i32, {scales.shape[0], (rows * bits + 31) / 32});
  check_order(tensors, "g_idx", group);
  const int offset = tensors.schemes().zero_point_offset;
  return make_affine(
      tensors, "qweight", bits, group,
      [=](int row, int column) { return number_at(codes, row, rows, bits, column); },
      [=](int row, int index) { return float_element(scales, index * rows + row); },
      [=](int row, int index) {
        const std::uint32_t zero = number_at(zeros, index * zeros.shape[1], 1, bits, row);
        return static_cast<float>(static_cast<int>(zero) + offset);
      });
}

StoredMatrix find_awq(StoredTensors& tensors) {
  // Of each 8 outputs in a word.
  constexpr int places[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const std::int64_t rows = tensors.rows();
  tensors.check(rows % 8 == 0, "qweight", "has outputs that do not fill words of 8");
  const std::int64_t words = rows / 8;
  const TensorView codes = tensors.take("qweight", StorageType::i32, {tensors.columns(), words});
  const TensorView scales = take_scales(tensors, "scales");
  tensors.check(is_matrix(scales, rows), "scales",
                "has shape " + arrays::to_string(scales.shape) +
                    ", expected a column for each of " + std::to_string(rows) + " outputs");
  const int group = tensors.group_of("scales", scales.shape[0]);
  check_stated(tensors, "qweight", 4, group);
  const TensorView zeros = tensors.take("qzeros", StorageType::i32, {scales.shape[0], words});
  const auto number = [=](const TensorView& tensor, std::int64_t line, int row) {
    const auto word = element<std::uint32_t>(tensor, line * words + row / 8);
    return word >> (4 * places[row % 8]) & 15U;
  };
  return make_affine(
      tensors, "qweight", 4, group, [=](int row, int column) { return number(codes, column, row); },
      [=](int row, int index) { return float_element(scales, index * rows + row); },
      [=](int row, int index) { return static_cast<float>(number(zeros, index, row)); });
}

StoredMatrix find_compressed(StoredTensors& tensors) {
  const std::int64_t rows = tensors.rows();
  const std::int64_t columns = tensors.columns();
  const TensorView codes = *tensors.peek("weight_packed");
  if (codes.type == StorageType::u8) {
    return find_nvfp4(tensors);
  }
  tensors.take("weight_packed");
  const auto per_word = codes.shape.size() == 2 && codes.shape[1] > 0
                            ? (columns + codes.shape[1] - 1) / codes.shape[1]
                            : 0;
  tensors.check(codes.type == StorageType::i32 && codes.shape.size() == 2 &&
                    codes.shape[0] == rows && (per_word == 4 || per_word == 8 || per_word == 16),
                "weight_packed",
                "has shape " + arrays::to_string(codes.shape) +
                    ", expected i32 words of 4, 8 or 16 "
                    "numbers for " +
                    std::to_string(rows) + " x " + std::to_string(columns));
  const auto bits = static_cast<int>(32 / per_word);
  const TensorView scales = take_scales(tensors, "weight_scale");
  tensors.check(scales.shape[0] == rows, "weight_scale",
                "has shape " + arrays::to_string(scales.shape) + ", expected a row for each of " +
                    std::to_string(rows) + " outputs");
  const int group = tensors.group_of("weight_scale", scales.shape[1]);
  check_stated(tensors, "weight_packed", bits, group);
  const std::int64_t groups = scales.shape[1];
  const TensorView shape = tensors.take("weight_shape");
  tensors.check(shape.type == StorageType::i64 && shape.bytes.size() == 16 &&
                    element<std::int64_t>(shape, 0) == rows &&
                    element<std::int64_t>(shape, 1) == columns,
                "weight_shape", "says another shape than " + arrays::to_string({rows, columns}));
  check_order(tensors, "weight_g_idx", group);
  std::optional<TensorView> zeros;
  if (tensors.contains("weight_zero_point")) {
    zeros = tensors.take("weight_zero_point", StorageType::i32,
                         {(rows + per_word - 1) / per_word, groups});
  }
  return make_affine(
      tensors, "weight_packed", bits, group,
      [=](int row, int column) { return number_at(codes, row * codes.shape[1], 1, bits, column); },
      [=](int row, int index) { return float_element(scales, row * groups + index); },
      [=](int row, int index) {
        return zeros ? static_cast<float>(number_at(*zeros, index, groups, bits, row))
                     : static_cast<float>(1 << (bits - 1));
      });
}

}  // namespace espalier::quantization
