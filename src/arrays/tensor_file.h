#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::arrays {

/// How the elements of a tensor are stored in a file: plain types, then GGUF's block types.
enum class StorageType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q8_1,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  q8_k,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq4_nl,
  iq4_xs,
  tq1_0,
  tq2_0,
  mxfp4,
  nvfp4,
};

/// What a storage type is called in messages, its elements per quantization block (1 for plain
/// types) and the bytes of one such block.
struct StorageTraits {
  std::string_view name;
  int elements;
  int bytes;
};

const StorageTraits& storage_traits(StorageType type);

/// One tensor of a file. `shape` is outermost first (GGUF's order reversed), so a weight is [N, K]
/// and its rows are contiguous. `bytes` points into the mapping and is exactly as long as shape and
/// type say; the file checked this.
struct TensorView {
  std::string name;
  StorageType type;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// The tensors of a checkpoint, from one file or many. Immutable; views stay valid as long as it
/// lives.
class TensorFile {
 public:
  virtual ~TensorFile() = default;

  virtual const std::vector<TensorView>& tensors() const = 0;
  /// Null when there is no tensor of that name.
  virtual const TensorView* find(std::string_view name) const = 0;
  /// The path to show in messages.
  virtual std::string path() const = 0;
  /// Tells the system that a tensor's pages were copied and may be dropped from this process.
  virtual void release(const TensorView& tensor) const = 0;
};

}  // namespace espalier::arrays
