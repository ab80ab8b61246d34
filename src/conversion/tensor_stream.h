#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "conversion/coded_parts.h"
#include "conversion/encoding.h"
#include "conversion/source_tensor.h"
#include "quantization/trellis_encoder.h"

namespace espalier::conversion {

/// One tensor and what it becomes.
struct PlannedTensor {
  SourceTensor source;
  Encoding target;
  /// Type of an affine target's scales and biases, to which the values are rounded first as MLX
  /// does.
  arrays::StorageType scale_dtype = arrays::StorageType::bf16;
  /// How the scales of a trellis target are chosen.
  quantization::TrellisScale trellis_scale = quantization::TrellisScale::searched;
};

/// One of the stored tensors that a target takes: the weight or codes, scales, biases.
struct StoredPart {
  std::string suffix;  // ".weight" becomes ".scales" or ".biases"; empty for the name itself
  arrays::StorageType type;
  std::vector<std::int64_t> shape;
};

/// In the order in which `stream_tensor` brings them.
std::vector<StoredPart> stored_parts(const PlannedTensor& tensor);

class InputMomentsSource;

/// How long the conversion is, and whether it should go on.
struct StreamControl {
  base::CancellationToken cancelled;
  std::function<void(std::int64_t elements)> advanced = {};  // called as values are done
  /// Keeps trellis-coded tensors when the conversion is interrupted; null: they are lost.
  std::shared_ptr<CodedParts> coded = {};
  /// What trellis codes' errors are fed back by; null: they are not.
  std::shared_ptr<InputMomentsSource> moments = {};
  std::function<void(std::string note)> noted = {};  // of what could not be done as asked
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
