#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlx/mlx.h"
#include "models/model.h"
#include "models/sequence_head.h"

namespace espalier::models {

/// A text for a sequence model: token ids, of which those from `second_segment` on belong to the
/// second of two texts (a cross-encoder's).
struct SequenceInput {
  std::vector<std::int32_t> tokens;
  std::optional<int> second_segment = {};
};

/// A model that gives one vector for each sequence: an embedding, or the scores of a classifier or
/// cross-encoder. Immutable but for the memory it computes in; used from one thread.
class SequenceModel {
 public:
  virtual ~SequenceModel() = default;

  virtual const Descriptor& descriptor() const = 0;
  /// How texts become embeddings; nothing for a classifier.
  virtual const std::optional<EmbeddingDescriptor>& embedding() const = 0;
  /// Width of the vectors: an embedding's dimensions or a classifier's labels.
  virtual int dimensions() const = 0;
  /// f32 [sequences, dimensions], evaluated. A sequence's vector depends on it alone. None may be
  /// empty or longer than the descriptor's context.
  virtual mlx::core::array run(const std::vector<SequenceInput>& sequences) = 0;
  /// Bytes of the weights as they are multiplied with.
  virtual std::size_t weight_bytes() const = 0;
  /// Those of them in private memory.
  virtual std::size_t packed_bytes() const = 0;
};

/// Whether a checkpoint's folder holds a sequence model: one with `modules.json`, an encoder, or a
/// classifier's architecture. Throws `LoadError` when `config.json` cannot be read.
bool is_sequence_model(const std::filesystem::path& folder);

/// Loads one. Throws `LoadError`.
std::unique_ptr<SequenceModel> load_sequence_model(const std::filesystem::path& folder,
                                                   const LoadOptions& options);

}  // namespace espalier::models
