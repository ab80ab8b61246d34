#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace espalier::generation {

/// How the next token is chosen. Defaults: plain sampling at temperature 1.
struct SamplingParameters {
  float temperature = 1.0F;  // 0: greedy
  int top_k = 0;             // 0: off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::map<tokenizer::TokenId, float> logit_bias = {};
  std::uint64_t seed = 0;  // with the position it determines every random number
};

/// One sequence to generate, as the engine sees it: ids in, ids out.
struct GenerationRequest {
  std::vector<tokenizer::TokenId> prompt = {};
  SamplingParameters sampling = SamplingParameters();
  std::optional<int> max_tokens = {};               // absent: until the context ends
  std::vector<tokenizer::TokenId> end_tokens = {};  // generation stops after one of these
  bool ignore_end = false;
  int logprobs = -1;  // -1: none; n: the chosen token's and the n most likely ones'
  /// What the text has to follow; null: nothing. It then ends as soon as it is complete, without an
  /// end token.
  std::shared_ptr<const grammar::Constraint> constraint = {};
  base::CancellationToken cancellation = base::CancellationToken();
};

struct TokenLogprob {
  tokenizer::TokenId id;
  float logprob;  // of the untempered distribution
};

enum class FinishReason { none, stop, length, cancelled, error };

/// One step of a request. The last event has a finish reason; an end token comes with `stop` and is
/// not text. `error` is set only with `FinishReason::error`.
struct TokenEvent {
  std::optional<tokenizer::TokenId> token = {};
  float logprob = 0.0F;
  std::vector<TokenLogprob> top = {};
  FinishReason finish = FinishReason::none;
  std::string error = {};
};

/// Called on the engine's thread for each event, in order; must return at once and not throw.
using TokenSink = std::function<void(TokenEvent)>;

}  // namespace espalier::generation
