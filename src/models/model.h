#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "layers/linear.h"
#include "layers/weight_reader.h"
#include "mlx/mlx.h"
#include "models/batch.h"
#include "models/descriptor.h"
#include "state/kv_pool.h"

namespace espalier::models {

struct LoadOptions {
  /// Of the residual stream; absent: f32 for GGUF, the checkpoint's own for safetensors.
  std::optional<mlx::core::Dtype> dtype;
  /// Absent: int8 for GGUF, int15 for quantized safetensors.
  std::optional<layers::ActivationFormat> activations = {};
  /// What products with trellis-coded weights are. Anything but `integer` fails the load of a model
  /// without such weights.
  layers::TrellisContract trellis = layers::TrellisContract::integer;
  /// Whether a weight that is infinite or not a number fails the load.
  bool check_weights = false;
  /// Where the weights are.
  layers::WeightPlace place = layers::WeightPlace::packed;
  /// Whether experts are packed in memory, or read from the file when they are chosen. Absent: in
  /// memory if the checkpoint fits there.
  std::optional<bool> map_experts = {};
  /// How long sequences are to get, which LongRoPE and dynamic NTK scaling depend on. Absent: as
  /// long as the model was trained for before such a scaling.
  std::optional<int> context = {};
};

/// A loaded causal language model. The weights are immutable; `forward` is called from one thread.
class Model {
 public:
  virtual ~Model() = default;

  virtual const Descriptor& descriptor() const = 0;
  /// One entry per attention layer, in the pool's layer order.
  virtual std::vector<state::KvLayerShape> kv_layers() const = 0;
  /// One entry per recurrent layer, in the pool's layer order.
  virtual std::vector<state::RecurrentLayerShape> recurrent_layers() const { return {}; }
  /// Extends each sequence's state by its rows and returns f32 logits [logits_rows, V],
  /// unevaluated: evaluating them writes the pool. A batch without logits rows is evaluated before
  /// this returns.
  virtual mlx::core::array forward(const Batch& batch, state::KvPool& pool) = 0;
  /// Bytes of the weights as they are multiplied with.
  virtual std::size_t weight_bytes() const = 0;
  /// Those of them in private memory.
  virtual std::size_t packed_bytes() const { return weight_bytes(); }
};

/// Loads a folder with `config.json` and safetensors, or a `.gguf` file. Throws `LoadError` naming
/// file and tensor or key: unknown architecture, unread config keys that change results, missing,
/// misshapen or unconsumed tensors.
std::unique_ptr<Model> load_model(const std::filesystem::path& path, const LoadOptions& options);

}  // namespace espalier::models
