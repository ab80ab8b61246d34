#pragma once

#include <string>
#include <vector>

#include "conversion/convert.h"
#include "conversion/tensor_stream.h"

namespace espalier::conversion {

struct Plan {
  std::vector<PlannedTensor> tensors;
  std::vector<std::string> notes;
};

/// "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
std::string layer_name(const std::string& tensor);

/// Whether MLX can quantize this tensor: the weight of a linear map or embedding. Routers, whose
/// choices a small error turns over, are not.
bool is_quantizable(const SourceTensor& tensor);

/// What each tensor becomes in a folder of safetensors, by the options and rules. A setting is a
/// dtype, `keep`, `affine:BITS:GROUP` (both optional), `BITS:GROUP`, `mxfp4`, `mxfp8`, `nvfp4` or
/// `trellis:BITS`.
/// `from_gguf`: dense tensors become bf16 when no dtype is given. Throws as `convert` does.
Plan plan_folder(std::vector<SourceTensor> tensors, const ConvertOptions& options, bool from_gguf);

/// The same for a GGUF file; a setting is a type's name or `keep`. Vectors and routers stay f32. A
/// tensor whose rows are not whole blocks gets a type with smaller ones, and so does the head when
/// the type has few bits, as llama.cpp does.
Plan plan_gguf(std::vector<SourceTensor> tensors, const ConvertOptions& options);

/// What a GGUF type is called ("Q4_K", any case). Throws `UsageError` for one without an encoder.
arrays::StorageType parse_gguf_type(const std::string& name);

}  // namespace espalier::conversion
