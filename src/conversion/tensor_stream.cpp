#include "conversion/tensor_stream.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "arrays/tensor_index.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "conversion/sizes.h"
#include "conversion/trellis_stream.h"
#include "quantization/gguf_blocks.h"
#include "quantization/gguf_encoders.h"

namespace espalier::conversion {
namespace {

using arrays::StorageType;
using quantization::MlxFormat;
using quantization::MlxMode;

/// Values that are read before their bytes are handed on, and that one thread takes at a time.
constexpr std::int64_t piece_values = 1 << 21;
constexpr std::int64_t tile_values = 1 << 15;

std::size_t plain_bytes(StorageType type, std::size_t values) {
  const auto& traits = arrays::storage_traits(type);
  return values / size(traits.elements) * size(traits.bytes);
}

/// Rounds to a half type and back, as casting the tensor first would.
void round_to(StorageType type, std::span<float> values) {
  if (type == StorageType::f32) return;
  std::vector<std::byte> stored(plain_bytes(type, values.size()));
  quantization::quantize(type, values, stored);
  quantization::dequantize(type, stored, values);
}

/// What is wrong with a tensor's values; found by any thread.
struct Faults {
  std::atomic<bool> not_finite = false;
  std::atomic<bool> too_large = false;
};

/// Encodes one tensor. `encode` may run on several threads at once, for different rows.
class Encoder {
 public:
  explicit Encoder(const PlannedTensor& tensor) : tensor_(tensor) {
    const auto rows = size(tensor.source.rows());
    if (const auto* format = std::get_if<MlxFormat>(&tensor.target)) {
      groups_per_row_ = size(tensor.source.columns() / format->group);
      row_bytes_ = size(tensor.source.columns()) * size(format->bits) / 8;
      const bool affine = format->mode == MlxMode::affine;
      scale_bytes_ = affine ? plain_bytes(tensor.scale_dtype, 1) : 1;
      scales_.resize(rows * groups_per_row_ * scale_bytes_);
      if (affine) biases_.resize(scales_.size());
    } else {
      row_bytes_ = plain_bytes(std::get<StorageType>(tensor.target), size(tensor.source.columns()));
    }
  }

  std::size_t row_bytes() const { return row_bytes_; }
  const std::vector<std::byte>& scales() const { return scales_; }
  const std::vector<std::byte>& biases() const { return biases_; }

  /// Rows from `first` on, as many as `values` has; `bytes` takes the weight's part.
  void encode(std::int64_t first, std::span<float> values, std::span<std::byte> bytes,
              Faults& faults) {
    const auto* format = std::get_if<MlxFormat>(&tensor_.target);
    const bool dense = is_dense(tensor_.target);
    if (!dense && !all_finite(values)) {
      faults.not_finite = true;
      return;
    }
    if (format == nullptr) {
      const auto type = std::get<StorageType>(tensor_.target);
      if (type == StorageType::f16 && !fits_half(values)) faults.too_large = true;
      quantization::quantize(type, values, bytes);
    } else {
      encode_mlx(*format, first, values, bytes, faults);
    }
  }

 private:
  static bool all_finite(std::span<const float> values) {
    // A sum of products with zero is zero unless one of them is not finite.
    float sum = 0;
    for (const float value : values) sum += value * 0.0F;
    return sum == 0;
  }

  static bool fits_half(std::span<const float> values) {
    constexpr float limit = 65520;  // from here on a half is infinite
    return std::ranges::none_of(
        values, [](float value) { return std::isfinite(value) && std::abs(value) >= limit; });
  }

  void encode_mlx(const MlxFormat& format, std::int64_t first, std::span<float> values,
                  std::span<std::byte> bytes, Faults& faults) {
    if (tensor_.scale_dtype == StorageType::f16 && !fits_half(values)) {
      faults.too_large = true;
      return;
    }
    round_to(tensor_.scale_dtype, values);
    const std::size_t groups = values.size() / size(format.group);
    const auto part = [&](std::vector<std::byte>& all) {
      return std::span(all).subspan(size(first) * groups_per_row_ * scale_bytes_,
                                    groups * scale_bytes_);
    };
    if (format.mode != MlxMode::affine) {
      quantization::encode_float(format, values, bytes, part(scales_));
      return;
    }
    std::vector<float> scales(groups);
    std::vector<float> biases(groups);
    quantization::encode_affine(format, values, bytes, scales, biases);
    quantization::quantize(tensor_.scale_dtype, scales, part(scales_));
    quantization::quantize(tensor_.scale_dtype, biases, part(biases_));
  }

  const PlannedTensor& tensor_;
  std::size_t row_bytes_ = 0;
  std::size_t groups_per_row_ = 0;
  std::size_t scale_bytes_ = 0;
  std::vector<std::byte> scales_;
  std::vector<std::byte> biases_;
};

void report(const PlannedTensor& tensor, const Faults& faults) {
  const std::string name = "tensor " + arrays::shown_name(tensor.source.name());
  if (faults.not_finite) {
    throw base::LoadError(name + " holds values that are not finite and cannot be quantized");
  }
  if (faults.too_large) throw base::LoadError(name + " holds values too large for float16");
}

/// Calls `work(first_row, rows)` for piece after piece of the tensor.
template <typename Work>
void for_pieces(const SourceTensor& source, const StreamControl& control, Work&& work) {
  const std::int64_t piece =
      std::max<std::int64_t>(1, piece_values / std::max<std::int64_t>(source.columns(), 1));
  for (std::int64_t first = 0; first < source.rows(); first += piece) {
    if (control.cancelled.cancelled()) throw Interrupted();
    const std::int64_t rows = std::min(piece, source.rows() - first);
    work(first, rows);
    source.release(first, first + rows);
    if (control.advanced) control.advanced(rows * source.columns());
  }
}

void encode_tensor(const PlannedTensor& tensor, const StreamControl& control, const Sink& sink) {
  const SourceTensor& source = tensor.source;
  const std::int64_t columns = source.columns();
  Encoder encoder(tensor);
  std::vector<std::byte> bytes;
  for_pieces(source, control, [&](std::int64_t first, std::int64_t rows) {
    bytes.resize(size(rows) * encoder.row_bytes());
    const std::int64_t tile =
        std::max<std::int64_t>(1, tile_values / std::max<std::int64_t>(columns, 1));
    base::TileCounter tiles(size((rows + tile - 1) / tile));
    Faults faults;
    std::vector<float> decoded;
    if (source.foreign()) {
      decoded.resize(size(rows * columns));
      source.read(first, rows, decoded);
    }
    base::compute_pool().run([&](int) {
      std::vector<float> values;
      for (std::size_t index; tiles.next(index);) {
        const std::int64_t begin = static_cast<std::int64_t>(index) * tile;
        const std::int64_t count = std::min(tile, rows - begin);
        values.resize(size(count * columns));
        if (source.foreign()) {
          std::copy_n(decoded.begin() + begin * columns, count * columns, values.begin());
        } else {
          source.read(first + begin, count, values);
        }
        encoder.encode(first + begin, values,
                       std::span(bytes).subspan(size(begin) * encoder.row_bytes(),
                                                size(count) * encoder.row_bytes()),
                       faults);
      }
    });
    report(tensor, faults);
    sink(bytes);
  });
  if (!encoder.scales().empty()) sink(encoder.scales());
  if (!encoder.biases().empty()) sink(encoder.biases());
}

/// Whether a part's stored bytes are what the target wants.
bool copies_part(const PlannedTensor& tensor, const arrays::TensorView& part, std::size_t index) {
  const bool affine_scale = index > 0 && is_dense(part.type);
  return !affine_scale || part.type == tensor.scale_dtype;
}

void copy_part(const PlannedTensor& tensor, const arrays::TensorView& part, std::size_t index,
               const StreamControl& control, const Sink& sink) {
  const SourceTensor& source = tensor.source;
  const bool as_it_is = copies_part(tensor, part, index);
  std::vector<std::byte> bytes;
  for_pieces(source, index == 0 ? control : StreamControl{control.cancelled},
             [&](std::int64_t first, std::int64_t rows) {
               bytes.clear();
               for (std::int64_t row = first; row < first + rows; ++row) {
                 const auto stored = source.row_bytes(part, row);
                 bytes.insert(bytes.end(), stored.begin(), stored.end());
               }
               if (as_it_is) return sink(bytes);
               const auto& traits = arrays::storage_traits(part.type);
               std::vector<float> values(bytes.size() / size(traits.bytes));
               quantization::dequantize(part.type, bytes, values);
               std::vector<std::byte> cast(plain_bytes(tensor.scale_dtype, values.size()));
               quantization::quantize(tensor.scale_dtype, values, cast);
               sink(cast);
             });
}

}  // namespace

std::vector<StoredPart> stored_parts(const PlannedTensor& tensor) {
  if (std::holds_alternative<kernels::TrellisFormat>(tensor.target)) return trellis_parts(tensor);
  const auto* format = std::get_if<MlxFormat>(&tensor.target);
  if (format == nullptr) {
    return {{"", std::get<StorageType>(tensor.target), tensor.source.shape()}};
  }
  std::vector<std::int64_t> codes = tensor.source.shape();
  std::vector<std::int64_t> groups = codes;
  codes.back() = codes.back() * format->bits / word_bits;
  groups.back() /= format->group;
  if (format->mode != MlxMode::affine) {
    return {{"", StorageType::u32, codes}, {".scales", StorageType::u8, groups}};
  }
  return {{"", StorageType::u32, codes},
          {".scales", tensor.scale_dtype, groups},
          {".biases", tensor.scale_dtype, groups}};
}

void stream_tensor(const PlannedTensor& tensor, const StreamControl& control, const Sink& sink) {
  if (std::holds_alternative<kernels::TrellisFormat>(tensor.target)) {
    return stream_trellis(tensor, control, sink);
  }
  const bool same = tensor.source.encoding() == tensor.target && tensor.source.keeps_bytes();
  const auto parts = tensor.source.parts();
  const bool made_up = parts.front()->bytes.empty() && tensor.source.elements() > 0;
  if (!same || made_up) {
    encode_tensor(tensor, control, sink);
    return;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) copy_part(tensor, *parts[i], i, control, sink);
}

}  // namespace espalier::conversion
