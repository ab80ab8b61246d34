#pragma once

#include "conversion/tensor_stream.h"

namespace espalier::conversion {

/// `stream_tensor` for a matrix that becomes trellis codes: codes, then scales. Takes up to 128 MB,
/// and what the rows of one matrix take when they are coded along the outputs.
void stream_trellis(const PlannedTensor& tensor, const StreamControl& control, const Sink& sink);

/// The two stored tensors.
std::vector<StoredPart> trellis_parts(const PlannedTensor& tensor);

}  // namespace espalier::conversion
