#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "generation/engine.h"
#include "generation/request.h"
#include "tokenizer/tokenizer.h"

namespace espalier::generation {

/// A piece of generated text: what a client may see now. Text that might still turn out to be the
/// beginning of a stop string is held back.
struct TextEvent {
  std::string text = {};
  std::vector<TokenEvent> tokens =
      {};  // those whose text this is, for logprobs, end token included
  FinishReason finish = FinishReason::none;
  std::string stop_string = {};  // the one that matched, if any
  std::string error = {};
};

/// Turns token events into text: streaming decode, stop strings, counting. Single-threaded; feed it
/// from whichever thread consumes the engine's events. The text ends before the stop string that is
/// complete first (of several ending together: the longest), however tokens cut it into pieces.
class TextAssembler {
 public:
  /// With `kept`, special tokens are left out of the text except those.
  TextAssembler(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stop,
                bool skip_special = true, std::unordered_set<tokenizer::TokenId> kept = {});
  ~TextAssembler();
  TextAssembler(TextAssembler&&) noexcept;
  TextAssembler& operator=(TextAssembler&&) noexcept;

  /// After an event with a finish reason, further tokens are ignored. When a stop string matches,
  /// the caller cancels the request.
  TextEvent push(TokenEvent event);
  /// Tokens counted so far: all up to the finish, end token included.
  int completion_tokens() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::generation
