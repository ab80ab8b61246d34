#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "generation/request.h"

namespace espalier::generation {

enum class KvType { f16, bf16, f32 };

struct EngineOptions {
  int max_running = 8;
  /// Requests beyond those running that may wait for their turn; more are refused with 429.
  int max_waiting = 1024;
  /// Positions a request may use; absent: the model's own, or what fits.
  std::optional<int> context = {};
  int prefill_chunk = 512;
  KvType kv_type = KvType::f16;
  std::optional<int> threads = {};
  /// "f32", "bfloat16" or "float16"; empty: the model's default.
  std::string dtype = {};
  /// "int8", "int15" or "f32"; empty: what suits the weights.
  std::string activations = {};
  /// Of trellis-coded weights: "integer" or "reference"; empty: integer.
  std::string numeric = {};
  /// Refuse weights that are infinite or not numbers.
  bool check_weights = false;
  /// Pack weights in private memory, which is faster, or read them from the file's pages.
  bool repack = true;
};

/// What the loaded model is, for listings and defaults. Plain data.
struct ModelInfo {
  std::string family;
  int vocabulary;
  int context;  // what a request may use: min(the model's, the option, what fits)
  int trained_context;
  std::size_t weight_bytes;
  std::size_t packed_bytes;  // those of them in private memory
  std::size_t kv_bytes_per_token;
  std::vector<tokenizer::TokenId> end_tokens;
};

/// Counters for /metrics; a consistent snapshot.
struct EngineStats {
  std::uint64_t requests_total, requests_finished, requests_cancelled;
  std::uint64_t prompt_tokens_total, generated_tokens_total, steps_total;
  int running, waiting;
  int kv_blocks_used, kv_blocks_total;
  double prefill_seconds_total, decode_seconds_total;
};

/// One model and the thread that computes it: continuous batching over a paged KV pool. All public
/// calls are thread-safe. No MLX type crosses this header.
class Engine {
 public:
  /// Loads the model on the engine's thread and returns when it is ready. Throws `LoadError`.
  static std::unique_ptr<Engine> load(const std::filesystem::path& path,
                                      const EngineOptions& options);
  virtual ~Engine() = default;

  virtual const ModelInfo& info() const = 0;

  /// Queues a request. Throws `RequestError` before any work when it cannot run: empty prompt, ids
  /// outside the vocabulary, prompt too long (400 `context_length_exceeded`), queue full (429).
  virtual void submit(GenerationRequest request, TokenSink sink) = 0;

  virtual EngineStats stats() const = 0;

  /// Waits until nothing runs or waits, at most `seconds`; true when it is so. New requests are
  /// refused with 503 from now on.
  virtual bool drain(double seconds) = 0;
};

}  // namespace espalier::generation
