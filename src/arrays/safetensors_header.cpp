#include "arrays/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "arrays/lfs_pointer.h"
#include "arrays/tensor_index.h"
#include "base/error.h"

namespace espalier::arrays {
namespace {

static_assert(std::endian::native == std::endian::little, "data is read as it lies in memory");

using base::LoadError;

constexpr std::uint64_t largest_header = 100'000'000;
constexpr std::size_t most_numbers = 16;

constexpr std::pair<std::string_view, StorageType> type_names[] = {
    {"F64", StorageType::f64},         {"F32", StorageType::f32},
    {"F16", StorageType::f16},         {"BF16", StorageType::bf16},
    {"F8_E4M3", StorageType::f8_e4m3}, {"F8_E5M2", StorageType::f8_e5m2},
    {"I64", StorageType::i64},         {"I32", StorageType::i32},
    {"I16", StorageType::i16},         {"I8", StorageType::i8},
    {"U64", StorageType::u64},         {"U32", StorageType::u32},
    {"U16", StorageType::u16},         {"U8", StorageType::u8},
    {"BOOL", StorageType::boolean},
};

/// Takes the header's JSON event by event, so that memory grows by tensors found and never by what
/// nesting or stray values a file brings. The only shape accepted is
/// `{NAME: {"dtype": S, "shape": [N…], "data_offsets": [N, N]}…, "__metadata__": {S: S…}}`.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(std::string path, std::vector<SafetensorsEntry>& entries)
      : path_(std::move(path)), entries_(entries) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a fraction"); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::shape && place_ != Place::offsets) unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      unexpected("a number beyond 63 bits");
    }
    if (numbers_.size() == most_numbers) unexpected("a list of too many numbers");
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::entry || field_ != "dtype") unexpected("a string");
    for (const auto& [name, type] : type_names) {
      if (name == value) type_ = type;
    }
    if (!type_) fail("has unknown dtype " + shown_name(value));
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top && name_ == "__metadata__") {
      place_ = Place::metadata;
    } else if (place_ == Place::top) {
      place_ = Place::entry;
      type_.reset();
      shape_.reset();
      offsets_.reset();
      field_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::entry) finish_entry();
    place_ = Place::top;
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::top) {
      name_ = value;
    } else if (place_ == Place::entry) {
      const bool known = value == "dtype" || value == "shape" || value == "data_offsets";
      if (!known) fail("has unknown field " + shown_name(value));
      const bool given = (value == "dtype" && type_) || (value == "shape" && shape_) ||
                         (value == "data_offsets" && offsets_);
      if (given) fail("has two fields " + shown_name(value));
      field_ = value;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::entry && field_ == "shape") {
      place_ = Place::shape;
    } else if (place_ == Place::entry && field_ == "data_offsets") {
      place_ = Place::offsets;
    } else {
      unexpected("a list");
    }
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    (place_ == Place::shape ? shape_ : offsets_) = numbers_;
    place_ = Place::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw LoadError(path_ + ": the header is not valid JSON at byte " + std::to_string(position));
  }

 private:
  enum class Place { outside, top, metadata, entry, shape, offsets };

  [[noreturn]] void fail(const std::string& what) const {
    throw LoadError(path_ + ": tensor " + shown_name(name_) + " " + what);
  }

  [[noreturn]] void unexpected(const std::string& what) const {
    if (place_ == Place::outside) throw LoadError(path_ + ": the header is not a JSON object");
    throw LoadError(path_ + ": the header has " + what + " at " + shown_name(name_) +
                    " where it does not belong");
  }

  void finish_entry() {
    if (!type_) fail("has no dtype");
    if (!shape_) fail("has no shape");
    if (!offsets_) fail("has no data_offsets");
    if (offsets_->size() != 2) fail("has not two data_offsets");
    entries_.push_back({name_, *type_, *shape_, static_cast<std::uint64_t>((*offsets_)[0]),
                        static_cast<std::uint64_t>((*offsets_)[1])});
  }

  std::string path_;
  std::vector<SafetensorsEntry>& entries_;
  Place place_ = Place::outside;
  std::string name_;
  std::string field_;
  std::optional<StorageType> type_;
  std::optional<std::vector<std::int64_t>> shape_;
  std::optional<std::vector<std::int64_t>> offsets_;
  std::vector<std::int64_t> numbers_;
};

void check_entry(const SafetensorsEntry& entry, std::uint64_t expected_begin, std::uint64_t size,
                 const std::string& path) {
  const std::string name = path + ": tensor " + shown_name(entry.name);
  if (entry.begin > entry.end || entry.end > size) {
    throw LoadError(name + " lies at bytes " + std::to_string(entry.begin) + " to " +
                    std::to_string(entry.end) + ", but the file holds " + std::to_string(size) +
                    " bytes of data");
  }
  if (entry.begin != expected_begin) {
    throw LoadError(name + " starts at byte " + std::to_string(entry.begin) +
                    ", but the tensor before it ends at " + std::to_string(expected_begin));
  }
  const auto bytes = tensor_bytes(entry.type, entry.shape);
  if (!bytes || *bytes != entry.end - entry.begin) {
    throw LoadError(name + " takes " + std::to_string(entry.end - entry.begin) +
                    " bytes, which is not what " + std::string(safetensors_type_name(entry.type)) +
                    " of shape " + to_string(entry.shape) + " needs");
  }
}

}  // namespace

std::string_view safetensors_type_name(StorageType type) {
  for (const auto& [name, value] : type_names) {
    if (value == type) return name;
  }
  return {};
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& path) {
  refuse_lfs_pointer(file, path);
  std::uint64_t length = 0;
  if (file.size() < sizeof(length)) throw LoadError(path + ": not a safetensors file");
  std::memcpy(&length, file.data(), sizeof(length));
  const std::uint64_t rest = file.size() - sizeof(length);
  if (length > std::min(rest, largest_header)) {
    throw LoadError(path + ": the header claims " + std::to_string(length) +
                    " bytes, more than the file or the limit of " + std::to_string(largest_header) +
                    " allows");
  }
  SafetensorsHeader header;
  header.data = sizeof(length) + length;
  HeaderEvents events(path, header.entries);
  const auto* text = reinterpret_cast<const char*>(file.data() + sizeof(length));
  nlohmann::json::sax_parse(text, text + length, &events);

  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t position = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    check_entry(entry, position, rest - length, path);
    position = entry.end;
  }
  if (position != rest - length) {
    throw LoadError(path + ": the last " + std::to_string(rest - length - position) +
                    " bytes belong to no tensor");
  }
  return header;
}

}  // namespace espalier::arrays
