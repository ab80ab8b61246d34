#pragma once

#include <functional>
#include <string>
#include <vector>

#include "generation/session.h"
#include "server/protocol/served_model.h"

namespace espalier::cli {

struct Timings {
  double prefill_seconds = 0.0;  // from submission to the first token
  double decode_seconds = 0.0;   // from the first token to the last
};

/// What a generation came to.
struct Answer {
  std::string text;
  std::vector<tokenizer::TokenId> tokens;
  int prompt_tokens = 0;
  generation::FinishReason finish = generation::FinishReason::none;
  Timings timings;
};

/// "stop", "length" or "cancelled", as answers in JSON say it.
std::string finish_reason_name(generation::FinishReason finish);

/// Runs one request to its end on the calling thread; `on_text` gets each piece of text as it
/// comes. Throws `RequestError` when the engine refuses the request and `std::runtime_error` when
/// it fails.
Answer generate_answer(const server::protocol::ServedModel& model,
                       generation::GenerationRequest request, std::vector<std::string> stop,
                       const std::function<void(const std::string&)>& on_text);

}  // namespace espalier::cli
