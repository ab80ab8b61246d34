#include "arrays/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "arrays/gguf_value_type.h"
#include "arrays/lfs_pointer.h"
#include "arrays/tensor_index.h"
#include "base/error.h"

namespace espalier::arrays {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as it lies in memory");

using base::LoadError;

/// What parsed values may take in memory beyond the file's own size.
constexpr std::uint64_t spare_memory = 48U << 20U;
constexpr std::uint64_t default_alignment = 32;
constexpr std::uint64_t largest_alignment = 1U << 20U;

/// The number by which a file names a type; numbers that are missing here were withdrawn.
constexpr std::pair<std::uint32_t, StorageType> storage_codes[] = {
    {0, StorageType::f32},     {1, StorageType::f16},      {2, StorageType::q4_0},
    {3, StorageType::q4_1},    {6, StorageType::q5_0},     {7, StorageType::q5_1},
    {8, StorageType::q8_0},    {9, StorageType::q8_1},     {10, StorageType::q2_k},
    {11, StorageType::q3_k},   {12, StorageType::q4_k},    {13, StorageType::q5_k},
    {14, StorageType::q6_k},   {15, StorageType::q8_k},    {16, StorageType::iq2_xxs},
    {17, StorageType::iq2_xs}, {18, StorageType::iq3_xxs}, {19, StorageType::iq1_s},
    {20, StorageType::iq4_nl}, {21, StorageType::iq3_s},   {22, StorageType::iq2_s},
    {23, StorageType::iq4_xs}, {24, StorageType::i8},      {25, StorageType::i16},
    {26, StorageType::i32},    {27, StorageType::i64},     {28, StorageType::f64},
    {29, StorageType::iq1_m},  {30, StorageType::bf16},    {34, StorageType::tq1_0},
    {35, StorageType::tq2_0},  {39, StorageType::mxfp4},   {40, StorageType::nvfp4},
};

std::optional<StorageType> storage_type(std::uint32_t code) {
  for (const auto& [number, type] : storage_codes) {
    if (number == code) return type;
  }
  return std::nullopt;
}

/// Reads little-endian values one after the other and never past the end.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string path)
      : bytes_(bytes), path_(std::move(path)), memory_(bytes.size() + spare_memory) {}

  [[noreturn]] void fail(const std::string& what) const { throw LoadError(path_ + ": " + what); }

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  T read(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string string(const char* what) {
    const auto length = read<std::uint64_t>(what);
    const auto text = take(length, what);
    charge(sizeof(std::string) + length, what);
    return std::string(reinterpret_cast<const char*>(text.data()), text.size());
  }

  /// Refuses a count that the rest of the file cannot hold, before anything is allocated for it.
  std::uint64_t count(std::uint64_t bytes_each, const char* what) {
    const auto value = read<std::uint64_t>(what);
    if (value > remaining() / bytes_each) {
      fail("the file ends before the " + std::to_string(value) + " entries of " + what);
    }
    return value;
  }

  /// Counts memory that parsed values take, so that no header makes us take more than the file
  /// justifies.
  void charge(std::uint64_t bytes, const char* what) {
    if (bytes > memory_) fail(std::string("the header is too large at ") + what);
    memory_ -= bytes;
  }

 private:
  std::span<const std::byte> take(std::uint64_t length, const char* what) {
    if (length > remaining()) fail(std::string("the file ends inside ") + what);
    const auto part = bytes_.subspan(position_, length);
    position_ += length;
    return part;
  }

  std::span<const std::byte> bytes_;
  std::string path_;
  std::uint64_t memory_;
  std::uint64_t position_ = 0;
};

template <typename Stored, typename Wide>
std::vector<Wide> read_array(Reader& reader, const char* what) {
  const std::uint64_t count = reader.count(sizeof(Stored), what);
  reader.charge(count * sizeof(Wide), what);
  std::vector<Wide> values(count);
  for (std::uint64_t i = 0; i < count; ++i) values[i] = reader.read<Stored>(what);
  return values;
}

bool read_boolean(Reader& reader, const char* what) {
  const auto value = reader.read<std::uint8_t>(what);
  if (value > 1) reader.fail(std::string("a boolean in ") + what + " is neither 0 nor 1");
  return value == 1;
}

std::vector<bool> read_booleans(Reader& reader, const char* what) {
  std::vector<bool> values(reader.count(1, what));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = read_boolean(reader, what);
  return values;
}

std::vector<std::string> read_strings(Reader& reader, const char* what) {
  const std::uint64_t count = reader.count(sizeof(std::uint64_t), what);
  std::vector<std::string> values;
  // Beyond this it grows by what was really read: the shortest string takes eight bytes, four times
  // that here.
  constexpr std::uint64_t most_reserved = 1U << 18U;
  values.reserve(std::min(count, most_reserved));
  for (std::uint64_t i = 0; i < count; ++i) values.push_back(reader.string(what));
  values.shrink_to_fit();
  return values;
}

GgufValue read_array_value(Reader& reader, const char* what) {
  switch (static_cast<GgufValueType>(reader.read<std::uint32_t>(what))) {
    case GgufValueType::u8:
      return read_array<std::uint8_t, std::uint64_t>(reader, what);
    case GgufValueType::i8:
      return read_array<std::int8_t, std::int64_t>(reader, what);
    case GgufValueType::u16:
      return read_array<std::uint16_t, std::uint64_t>(reader, what);
    case GgufValueType::i16:
      return read_array<std::int16_t, std::int64_t>(reader, what);
    case GgufValueType::u32:
      return read_array<std::uint32_t, std::uint64_t>(reader, what);
    case GgufValueType::i32:
      return read_array<std::int32_t, std::int64_t>(reader, what);
    case GgufValueType::f32:
      return read_array<float, double>(reader, what);
    case GgufValueType::boolean:
      return read_booleans(reader, what);
    case GgufValueType::string:
      return read_strings(reader, what);
    case GgufValueType::array:
      reader.fail(std::string("nested arrays are not supported in ") + what);
    case GgufValueType::u64:
      return read_array<std::uint64_t, std::uint64_t>(reader, what);
    case GgufValueType::i64:
      return read_array<std::int64_t, std::int64_t>(reader, what);
    case GgufValueType::f64:
      return read_array<double, double>(reader, what);
  }
  reader.fail(std::string("unknown element type in ") + what);
}

GgufValue read_value(Reader& reader, const char* what) {
  switch (static_cast<GgufValueType>(reader.read<std::uint32_t>(what))) {
    case GgufValueType::u8:
      return std::uint64_t{reader.read<std::uint8_t>(what)};
    case GgufValueType::i8:
      return std::int64_t{reader.read<std::int8_t>(what)};
    case GgufValueType::u16:
      return std::uint64_t{reader.read<std::uint16_t>(what)};
    case GgufValueType::i16:
      return std::int64_t{reader.read<std::int16_t>(what)};
    case GgufValueType::u32:
      return std::uint64_t{reader.read<std::uint32_t>(what)};
    case GgufValueType::i32:
      return std::int64_t{reader.read<std::int32_t>(what)};
    case GgufValueType::f32:
      return double{reader.read<float>(what)};
    case GgufValueType::boolean:
      return read_boolean(reader, what);
    case GgufValueType::string:
      return reader.string(what);
    case GgufValueType::array:
      return read_array_value(reader, what);
    case GgufValueType::u64:
      return reader.read<std::uint64_t>(what);
    case GgufValueType::i64:
      return reader.read<std::int64_t>(what);
    case GgufValueType::f64:
      return reader.read<double>(what);
  }
  reader.fail(std::string("unknown value type in ") + what);
}

void check_version(Reader& reader) {
  if (reader.remaining() < 4 || reader.read<std::uint32_t>("the magic") != 0x46554747U) {
    reader.fail("not a GGUF file");
  }
  const auto version = reader.read<std::uint32_t>("the version");
  if (version == 0x02000000U || version == 0x03000000U) {
    reader.fail("big-endian GGUF files are not supported");
  }
  if (version != 2 && version != 3) {
    reader.fail("GGUF version " + std::to_string(version) + " is not supported, only 2 and 3");
  }
}

void read_values(Reader& reader, std::uint64_t count, GgufHeader& header) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string key = reader.string("a metadata key");
    const std::string what = "the value of key " + shown_name(key);
    reader.charge(sizeof(GgufValue) + 64, what.c_str());
    GgufValue value = read_value(reader, what.c_str());
    if (!header.values.emplace(std::move(key), std::move(value)).second) {
      reader.fail(what.substr(13) + " appears twice");
    }
  }
}

GgufHeader::Tensor read_tensor(Reader& reader) {
  GgufHeader::Tensor tensor;
  tensor.name = reader.string("a tensor name");
  const std::string what = "tensor " + shown_name(tensor.name);
  reader.charge(sizeof(TensorView) + sizeof(GgufHeader::Tensor) + 128, what.c_str());
  const auto dimensions = reader.read<std::uint32_t>(what.c_str());
  if (dimensions > most_gguf_dimensions) {
    reader.fail(what + " has " + std::to_string(dimensions) + " dimensions, at most " +
                std::to_string(most_gguf_dimensions) + " are allowed");
  }
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto size = reader.read<std::uint64_t>(what.c_str());
    if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      reader.fail(what + " has an impossible dimension");
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
  }
  const auto code = reader.read<std::uint32_t>(what.c_str());
  const auto type = storage_type(code);
  if (!type) reader.fail(what + " has unknown type " + std::to_string(code));
  tensor.type = *type;
  tensor.offset = reader.read<std::uint64_t>(what.c_str());
  const auto bytes = tensor_bytes(*type, tensor.shape);
  if (!bytes) {
    reader.fail(what + " of type " + std::string(storage_traits(*type).name) +
                " cannot have shape " + to_string(tensor.shape));
  }
  tensor.bytes = *bytes;
  return tensor;
}

std::uint64_t read_alignment(const Reader& reader, const GgufHeader& header) {
  const auto found = header.values.find("general.alignment");
  if (found == header.values.end()) return default_alignment;
  const auto* value = std::get_if<std::uint64_t>(&found->second);
  if (value == nullptr || !std::has_single_bit(*value) || *value > largest_alignment) {
    reader.fail("general.alignment is not a power of two up to " +
                std::to_string(largest_alignment));
  }
  return *value;
}

void check_tensors(const Reader& reader, const GgufHeader& header, std::uint64_t file_size,
                   std::uint64_t alignment) {
  const std::uint64_t room = file_size - std::min(file_size, header.data);
  std::vector<const GgufHeader::Tensor*> sorted;
  for (const GgufHeader::Tensor& tensor : header.tensors) {
    const std::string name = "tensor " + shown_name(tensor.name);
    if (tensor.offset % alignment != 0) {
      reader.fail(name + " starts at " + std::to_string(tensor.offset) +
                  ", which is not a multiple of " + std::to_string(alignment));
    }
    if (tensor.offset > room || tensor.bytes > room - tensor.offset) {
      reader.fail(name + " needs " + std::to_string(tensor.bytes) + " bytes at " +
                  std::to_string(tensor.offset) + ", but the file holds only " +
                  std::to_string(room) + " bytes of tensor data");
    }
    if (tensor.bytes > 0) sorted.push_back(&tensor);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->offset + sorted[i - 1]->bytes > sorted[i]->offset) {
      reader.fail("tensors " + shown_name(sorted[i - 1]->name) + " and " +
                  shown_name(sorted[i]->name) + " overlap");
    }
  }
}

}  // namespace

std::optional<std::uint32_t> gguf_type_code(StorageType type) {
  for (const auto& [number, stored] : storage_codes) {
    if (stored == type) return number;
  }
  return std::nullopt;
}

GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::string& path) {
  refuse_lfs_pointer(file, path);
  Reader reader(file, path);
  check_version(reader);
  // The smallest tensor entry: name length, dimensions, type, offset. The smallest metadata entry:
  // key length, type, one byte.
  const std::uint64_t tensors = reader.count(24, "the tensor list");
  const std::uint64_t values = reader.count(13, "the metadata");
  GgufHeader header;
  read_values(reader, values, header);
  const std::uint64_t alignment = read_alignment(reader, header);
  for (std::uint64_t i = 0; i < tensors; ++i) header.tensors.push_back(read_tensor(reader));
  header.data = (reader.position() + alignment - 1) / alignment * alignment;
  check_tensors(reader, header, file.size(), alignment);
  return header;
}

}  // namespace espalier::arrays
