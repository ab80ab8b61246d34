#include "conversion/trellis_stream.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "arrays/tensor_index.h"
#include "base/error.h"
#include "conversion/input_moments.h"
#include "conversion/trellis_plan.h"
#include "quantization/trellis_encoder.h"
#include "quantization/trellis_feedback.h"

namespace espalier::conversion {
namespace {

using arrays::StorageType;
using kernels::TrellisFormat;

/// Weights that are coded before their bytes are handed on, and that are read at once from a matrix
/// whose columns are coded.
constexpr std::int64_t coded_piece_values = std::int64_t{1} << 20;
constexpr std::int64_t gathered_values = std::int64_t{1} << 25;
constexpr std::int64_t read_values = std::int64_t{1} << 18;

const TrellisFormat& format_of(const PlannedTensor& tensor) {
  return std::get<TrellisFormat>(tensor.target);
}

/// The stored matrix S: the weight, or its transpose for axis 0.
struct StoredSize {
  std::int64_t rows;
  std::int64_t columns;

  explicit StoredSize(const PlannedTensor& tensor)
      : rows(tensor.source.rows()), columns(tensor.source.columns()) {
    if (format_of(tensor).axis == 0) std::swap(rows, columns);
  }
  std::int64_t row_words(const TrellisFormat& format) const {
    return format.words(columns / kernels::trellis_block_weights);
  }
};

/// Columns [first, first + count) of the weight as rows of S.
std::vector<float> gather_columns(const SourceTensor& source, std::int64_t first,
                                  std::int64_t count) {
  const std::int64_t rows = source.rows();
  const std::int64_t columns = source.columns();
  std::vector<float> result(static_cast<std::size_t>(rows * count));
  const std::int64_t step = std::max<std::int64_t>(1, read_values / columns);
  std::vector<float> piece;
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t read = std::min(step, rows - row);
    piece.resize(static_cast<std::size_t>(read * columns));
    source.read(row, read, piece);
    for (std::int64_t i = 0; i < read; ++i) {
      for (std::int64_t k = 0; k < count; ++k) {
        result[static_cast<std::size_t>(k * rows + row + i)] =
            piece[static_cast<std::size_t>(i * columns + first + k)];
      }
    }
  }
  return result;
}

std::vector<float> read_rows(const PlannedTensor& tensor, std::int64_t first, std::int64_t count) {
  if (format_of(tensor).axis == 0) return gather_columns(tensor.source, first, count);
  std::vector<float> values(static_cast<std::size_t>(count * tensor.source.columns()));
  tensor.source.read(first, count, values);
  return values;
}

void code(const PlannedTensor& tensor, const StreamControl& control, const Sink& sink) {
  const TrellisFormat& format = format_of(tensor);
  const StoredSize size(tensor);
  const bool along_outputs = format.axis == 0;
  const std::int64_t step = std::max<std::int64_t>(
      1, (along_outputs ? gathered_values : coded_piece_values) / size.columns);
  const std::int64_t coded = std::max<std::int64_t>(1, coded_piece_values / size.columns);
  std::vector<std::uint16_t> scales;
  for (std::int64_t first = 0; first < size.rows; first += step) {
    const std::int64_t rows = std::min(step, size.rows - first);
    const std::vector<float> values = read_rows(tensor, first, rows);
    for (std::int64_t at = 0; at < rows; at += coded) {
      if (control.cancelled.cancelled()) throw Interrupted();
      const std::int64_t count = std::min(coded, rows - at);
      const quantization::TrellisCodes codes = quantization::encode_trellis(
          values.data() + at * size.columns, static_cast<int>(count),
          static_cast<int>(size.columns), format, tensor.trellis_scale);
      sink(std::as_bytes(std::span(codes.words)));
      scales.insert(scales.end(), codes.scales.begin(), codes.scales.end());
      if (control.advanced) control.advanced(count * size.columns);
    }
  }
  tensor.source.release(0, tensor.source.rows());
  sink(std::as_bytes(std::span(scales)));
}

/// The whole matrix with errors fed back; nothing where that cannot be done.
std::optional<quantization::TrellisCodes> code_with_feedback(const PlannedTensor& tensor,
                                                             const StreamControl& control) {
  const TrellisFormat& format = format_of(tensor);
  const auto fail = [&](const char* why) {
    if (control.noted) {
      control.noted(tensor.source.name() + " is coded without feedback of errors: " + why);
    }
    return std::nullopt;
  };
  const auto seen = control.moments->moments(tensor.source.stored_name());
  if (seen == nullptr || seen->width != tensor.source.columns()) return fail("no inputs were seen");
  InputMoments moments = *seen;
  if (tensor.source.folding()) moments = folded(std::move(moments), *tensor.source.folding());
  const auto factor = quantization::factor_moments(std::move(moments.values), moments.width,
                                                   quantization::feedback_block(format));
  if (!factor) return fail("the moments of its inputs have no factor");
  const StoredSize size(tensor);
  const std::vector<float> values = read_rows(tensor, 0, size.rows);
  auto codes = quantization::encode_trellis_with_feedback(
      values.data(), static_cast<int>(size.rows), static_cast<int>(size.columns), format,
      tensor.trellis_scale, *factor);
  if (!codes) return fail("what was fed back outgrew the weights");
  return codes;
}

void code_tensor(const PlannedTensor& tensor, const StreamControl& control, const Sink& sink) {
  if (control.moments != nullptr) {
    if (control.cancelled.cancelled()) throw Interrupted();
    if (const auto codes = code_with_feedback(tensor, control)) {
      tensor.source.release(0, tensor.source.rows());
      sink(std::as_bytes(std::span(codes->words)));
      sink(std::as_bytes(std::span(codes->scales)));
      if (control.advanced) control.advanced(tensor.source.elements());
      return;
    }
  }
  code(tensor, control, sink);
}

std::string key_of(const PlannedTensor& tensor) {
  const TrellisFormat& format = format_of(tensor);
  constexpr std::array<std::string_view, 3> scales = {"", " refitted", " searched"};
  return tensor.source.name() + " " + arrays::to_string(tensor.source.shape()) + " " +
         to_string(tensor.target) + " axis " + std::to_string(format.axis) +
         std::string(scales.at(static_cast<std::size_t>(tensor.trellis_scale)));
}

}  // namespace

std::vector<StoredPart> trellis_parts(const PlannedTensor& tensor) {
  const StoredSize size(tensor);
  return {{"", StorageType::u32, {size.rows, size.row_words(format_of(tensor))}},
          {".scales", StorageType::f16, {size.rows}}};
}

void stream_trellis(const PlannedTensor& tensor, const StreamControl& control, const Sink& sink) {
  const auto produce = [&](const Sink& target) {
    try {
      code_tensor(tensor, control, target);
    } catch (const base::LoadError& error) {
      throw base::LoadError("tensor " + arrays::shown_name(tensor.source.name()) + ": " +
                            error.what());
    }
  };
  if (control.coded == nullptr) return produce(sink);
  std::uint64_t bytes = 0;
  for (const StoredPart& part : trellis_parts(tensor)) {
    bytes += arrays::tensor_bytes(part.type, part.shape).value_or(0);
  }
  const std::string key = key_of(tensor);
  if (control.coded->replay(key, bytes, sink)) {
    if (control.advanced) control.advanced(tensor.source.elements());
    return;
  }
  control.coded->keep(key, produce, sink);
}

}  // namespace espalier::conversion
