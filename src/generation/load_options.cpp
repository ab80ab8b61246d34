#include "generation/load_options.h"

#include "base/error.h"

namespace espalier::generation {

namespace mx = mlx::core;
using base::UsageError;

models::LoadOptions parse_load_options(const std::string& dtype, const std::string& activations,
                                       const std::string& numeric) {
  models::LoadOptions options;
  if (dtype == "float32" || dtype == "f32") {
    options.dtype = mx::float32;
  } else if (dtype == "bfloat16") {
    options.dtype = mx::bfloat16;
  } else if (dtype == "float16") {
    options.dtype = mx::float16;
  } else if (!dtype.empty()) {
    throw UsageError("the dtype must be float32, bfloat16 or float16, not \"" + dtype + "\"");
  }
  if (activations == "f32") {
    options.activations = kernels::ActivationFormat::f32;
  } else if (activations == "int8") {
    options.activations = kernels::ActivationFormat::int8;
  } else if (activations == "int15") {
    options.activations = kernels::ActivationFormat::int15;
  } else if (!activations.empty()) {
    throw UsageError("the activations must be int8, int15 or f32, not \"" + activations + "\"");
  }
  if (numeric == "reference") {
    options.trellis = layers::TrellisContract::reference;
  } else if (!numeric.empty() && numeric != "integer") {
    throw UsageError("the numeric contract must be integer or reference, not \"" + numeric + "\"");
  }
  return options;
}

models::LoadOptions load_options(const EngineOptions& options) {
  models::LoadOptions load =
      parse_load_options(options.dtype, options.activations, options.numeric);
  load.check_weights = options.check_weights;
  load.context = options.context;
  load.place = options.repack ? layers::WeightPlace::packed : layers::WeightPlace::in_place;
  return load;
}

mx::Dtype kv_dtype(KvType type) {
  switch (type) {
    case KvType::f16:
      return mx::float16;
    case KvType::bf16:
      return mx::bfloat16;
    case KvType::f32:
      break;
  }
  return mx::float32;
}

}  // namespace espalier::generation
