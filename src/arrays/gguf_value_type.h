#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::arrays {

/// The numbers by which a GGUF file names the types of its values.
enum class GgufValueType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};

/// Of a tensor in a GGUF file.
inline constexpr std::size_t most_gguf_dimensions = 4;

}  // namespace espalier::arrays
