#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "quantization/stored_matrix.h"

namespace espalier::quantization {

/// The tensors of one stored matrix: finds and checks them, and remembers which were used.
class StoredTensors {
 public:
  StoredTensors(const TensorLookup& lookup, const WeightSchemes& schemes, std::string file,
                std::string path, int rows, int columns)
      : lookup_(lookup),
        schemes_(schemes),
        file_(std::move(file)),
        path_(std::move(path)),
        rows_(rows),
        columns_(columns) {}

  const WeightSchemes& schemes() const { return schemes_; }
  const std::string& path() const { return path_; }
  std::string name(const std::string& suffix) const { return path_ + "." + suffix; }
  int rows() const { return rows_; }
  int columns() const { return columns_; }

  bool contains(const std::string& suffix) const { return lookup_(name(suffix)).has_value(); }
  /// Looked at without counting as used.
  std::optional<arrays::TensorView> peek(const std::string& suffix) const {
    return lookup_(name(suffix));
  }
  arrays::TensorView take(const std::string& suffix);
  /// As `take`, checking the shape too, or the type.
  arrays::TensorView take(const std::string& suffix, const std::vector<std::int64_t>& shape);
  arrays::TensorView take(const std::string& suffix, arrays::StorageType type,
                          const std::vector<std::int64_t>& shape);
  /// Counts a tensor that adds nothing as used, where it is there.
  void skip(const std::string& suffix);

  [[noreturn]] void fail(const std::string& suffix, const std::string& reason) const;
  /// Throws `LoadError` unless `holds`.
  void check(bool holds, const std::string& suffix, const std::string& reason) const {
    if (!holds) fail(suffix, reason);
  }
  /// `columns` per group, a multiple of 32, from the number of groups in a row.
  int group_of(const std::string& suffix, std::int64_t groups) const;

  std::vector<arrays::TensorView> used() const { return used_; }

 private:
  const TensorLookup& lookup_;
  const WeightSchemes& schemes_;
  std::string file_;
  std::string path_;
  int rows_;
  int columns_;
  std::vector<arrays::TensorView> used_;
};

/// Element `index` of a tensor of type T.
template <class T>
T element(const arrays::TensorView& tensor, std::int64_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

/// Element `index` of a f32, f16 or bf16 tensor.
float float_element(const arrays::TensorView& tensor, std::int64_t index);

/// How a tensor of scales is kept in a band's headers; nothing when its type is none of those.
std::optional<kernels::ScaleType> scale_type(arrays::StorageType type);

/// `count` numbers of `bits` bits each, from the lowest bit of `bytes` on.
void unpack_bits(const std::uint8_t* bytes, int bits, int count, std::uint8_t* codes);

/// What holds codes of so many bits, each scaled and added to.
std::optional<kernels::BandType> affine_type(int bits);

/// What the configuration says of an MLX module, if anything.
std::optional<MlxScheme> configured_scheme(const StoredTensors& tensors);

// The schemes, each by the tensors it is known by.
StoredMatrix find_mlx(StoredTensors& tensors);         // .weight u32, .scales
StoredMatrix find_fp8(StoredTensors& tensors);         // .weight f8, .weight_scale(_inv)
StoredMatrix find_int8(StoredTensors& tensors);        // .weight i8, .weight_scale
StoredMatrix find_compressed(StoredTensors& tensors);  // .weight_packed
StoredMatrix find_nvfp4(StoredTensors& tensors);       // .weight u8, .weight_scale f8
StoredMatrix find_gptq(StoredTensors& tensors);        // .qweight
StoredMatrix find_awq(StoredTensors& tensors);
StoredMatrix find_trellis(StoredTensors& tensors, const kernels::TrellisFormat& format);
StoredMatrix find_nf4(StoredTensors& tensors);  // .weight u8, .weight.absmax

}  // namespace espalier::quantization
