#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "conversion/encoding.h"
#include "conversion/source_tensor.h"

namespace espalier::conversion {

/// One tensor and what it becomes.
struct PlannedTensor {
  SourceTensor source;
  Encoding target;
  /// Type of an affine target's scales and biases, to which the values are rounded first as MLX
  /// does.
  arrays::StorageType scale_dtype = arrays::StorageType::bf16;
};

/// One of the stored tensors that a target takes: the weight or codes, scales, biases.
struct StoredPart {
  std::string suffix;  // ".weight" becomes ".scales" or ".biases"; empty for the name itself
  arrays::StorageType type;
  std::vector<std::int64_t> shape;
};

/// In the order in which `stream_tensor` brings them.
std::vector<StoredPart> stored_parts(const PlannedTensor& tensor);

/// How long the conversion is, and whether it should go on.
struct StreamControl {
  base::CancellationToken cancelled;
  std::function<void(std::int64_t elements)> advanced = {};  // called as values are done
};

/// Thrown when the conversion was cancelled.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted; nothing was written") {}
};

using Sink = std::function<void(std::span<const std::byte>)>;

/// Reads the tensor piece by piece on all compute threads, encodes it and hands the parts' bytes to
/// `sink` one part after the other. Memory: a few megabytes, and scales and biases of one tensor.
/// Bytes are copied where source and target store the same. Throws `LoadError` naming the tensor
/// when a value is not finite but has to be quantized, or does not fit the target's type.
void stream_tensor(const PlannedTensor& tensor, const StreamControl& control, const Sink& sink);

}  // namespace espalier::conversion
