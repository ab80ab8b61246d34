#include "arrays/gguf_writer.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "arrays/gguf_header.h"
#include "arrays/gguf_value_type.h"
#include "arrays/tensor_index.h"

namespace espalier::arrays {
namespace {

constexpr std::uint64_t alignment = 32;
/// An array of bytes, unlike all other arrays of numbers.
constexpr std::string_view byte_array_key = "tokenizer.ggml.precompiled_charsmap";

std::uint64_t padding(std::uint64_t bytes) { return (alignment - bytes % alignment) % alignment; }

class HeaderText {
 public:
  template <typename T>
  void number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(std::string_view text) {
    number<std::uint64_t>(text.size());
    text_ += text;
  }
  void type(GgufValueType type) { number(static_cast<std::uint32_t>(type)); }
  void pad() { text_.append(padding(text_.size()), '\0'); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

template <typename Narrow, typename Wide>
bool fits(Wide value) {
  return value >= static_cast<Wide>(std::numeric_limits<Narrow>::min()) &&
         value <= static_cast<Wide>(std::numeric_limits<Narrow>::max());
}

template <typename Narrow, typename Wide>
bool all_fit(const std::vector<Wide>& values) {
  return std::ranges::all_of(values, [](Wide value) { return fits<Narrow>(value); });
}

/// Writes one value; arrays take one type for all their elements.
class ValueWriter {
 public:
  ValueWriter(HeaderText& out, std::string_view key) : out_(out), key_(key) {}

  void operator()(std::uint64_t value) const { integer<std::uint32_t>(value); }
  void operator()(std::int64_t value) const { integer<std::int32_t>(value); }
  void operator()(double value) const {
    out_.type(GgufValueType::f32);
    out_.number(static_cast<float>(value));
  }
  void operator()(bool value) const {
    out_.type(GgufValueType::boolean);
    out_.number<std::uint8_t>(value ? 1 : 0);
  }
  void operator()(const std::string& value) const {
    out_.type(GgufValueType::string);
    out_.string(value);
  }
  void operator()(const std::vector<std::uint64_t>& values) const {
    integers<std::uint32_t>(values);
  }
  void operator()(const std::vector<std::int64_t>& values) const { integers<std::int32_t>(values); }
  void operator()(const std::vector<double>& values) const {
    numbers<float>(GgufValueType::f32, values);
  }
  void operator()(const std::vector<bool>& values) const {
    numbers<std::uint8_t>(GgufValueType::boolean, values);
  }
  void operator()(const std::vector<std::string>& values) const {
    array(GgufValueType::string, values.size());
    for (const std::string& value : values) out_.string(value);
  }

 private:
  template <typename Narrow>
  static constexpr GgufValueType narrow_type =
      std::is_signed_v<Narrow> ? GgufValueType::i32 : GgufValueType::u32;
  template <typename Narrow>
  static constexpr GgufValueType wide_type =
      std::is_signed_v<Narrow> ? GgufValueType::i64 : GgufValueType::u64;

  template <typename Narrow, typename Wide>
  void integer(Wide value) const {
    if (fits<Narrow>(value)) {
      out_.type(narrow_type<Narrow>);
      out_.number(static_cast<Narrow>(value));
    } else {
      out_.type(wide_type<Narrow>);
      out_.number(value);
    }
  }

  template <typename Narrow, typename Wide>
  void integers(const std::vector<Wide>& values) const {
    if (key_ == byte_array_key && all_fit<std::uint8_t>(values)) {
      numbers<std::uint8_t>(GgufValueType::u8, values);
    } else if (all_fit<Narrow>(values)) {
      numbers<Narrow>(narrow_type<Narrow>, values);
    } else {
      numbers<Wide>(wide_type<Narrow>, values);
    }
  }

  template <typename Stored, typename Values>
  void numbers(GgufValueType type, const Values& values) const {
    array(type, values.size());
    for (const auto value : values) out_.number(static_cast<Stored>(value));
  }

  void array(GgufValueType type, std::uint64_t count) const {
    out_.type(GgufValueType::array);
    out_.type(type);
    out_.number(count);
  }

  HeaderText& out_;
  std::string_view key_;
};

}  // namespace

GgufWriter::GgufWriter(std::filesystem::path path, const GgufValues& values,
                       const std::vector<Entry>& entries)
    : file_(std::move(path)) {
  HeaderText header;
  for (const char character : std::string_view("GGUF")) header.number(character);
  header.number<std::uint32_t>(3);
  header.number<std::uint64_t>(entries.size());
  header.number<std::uint64_t>(values.size());
  for (const auto& [key, value] : values) {
    header.string(key);
    std::visit(ValueWriter(header, key), value);
  }
  std::uint64_t offset = 0;
  for (const Entry& entry : entries) {
    const auto code = gguf_type_code(entry.type);
    const auto bytes = tensor_bytes(entry.type, entry.shape);
    if (!code || !bytes || entry.shape.empty() || entry.shape.size() > most_gguf_dimensions) {
      throw std::invalid_argument("[GgufWriter] cannot write tensor " + shown_name(entry.name) +
                                  " of shape " + to_string(entry.shape));
    }
    header.string(entry.name);
    header.number(static_cast<std::uint32_t>(entry.shape.size()));
    for (auto size = entry.shape.rbegin(); size != entry.shape.rend(); ++size) {
      header.number(static_cast<std::uint64_t>(*size));
    }
    header.number(*code);
    header.number(offset);
    sizes_.push_back(*bytes);
    offset += *bytes + padding(*bytes);
  }
  header.pad();
  file_.write(std::as_bytes(std::span(header.text())));
}

void GgufWriter::append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (tensor_ == sizes_.size() || bytes.size() > sizes_[tensor_] - written_) {
    throw std::logic_error("[GgufWriter] more data than the entries describe");
  }
  file_.write(bytes);
  written_ += bytes.size();
  if (written_ < sizes_[tensor_]) return;
  const std::vector<std::byte> zeros(padding(written_));
  file_.write(zeros);
  written_ = 0;
  do {
    ++tensor_;
  } while (tensor_ < sizes_.size() && sizes_[tensor_] == 0);
}

void GgufWriter::finish() {
  if (tensor_ != sizes_.size()) {
    throw std::logic_error("[GgufWriter] the data of " + std::to_string(sizes_.size() - tensor_) +
                           " tensors is missing");
  }
  file_.publish(base::OutputFile::Existing::refuse);
}

}  // namespace espalier::arrays
