#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "generation/session.h"
#include "grammar/grammar.h"
#include "server/protocol/event_queue.h"
#include "server/protocol/served_model.h"

namespace espalier::server::protocol {

/// A grammar that a request gives, and the parameter by which it does.
struct RequestedGrammar {
  grammar::Grammar grammar;
  std::string parameter;
};

/// What a request asks to generate, after templates and tokenizer: one entry per choice.
struct PreparedRun {
  std::vector<generation::GenerationRequest> sequences;
  std::unordered_set<tokenizer::TokenId> kept_special;  // special tokens that are text
  std::vector<std::string> stop;
  std::optional<RequestedGrammar> constraint;  // of every sequence, to be compiled
  int prompt_tokens = 0;                       // of the request, each prompt counted once
};

/// Text of one choice.
struct ChoiceEvent {
  int choice = 0;
  generation::TextEvent event;
};

/// One request in the engine. Destroying it cancels what still runs, so a client that goes away
/// stops its generation. Used on one strand.
class GenerationRun {
 public:
  /// Submits every sequence. Throws the engine's `RequestError` when one cannot run; then none
  /// does.
  GenerationRun(std::shared_ptr<const ServedModel> model, PreparedRun prepared,
                boost::asio::any_io_executor executor);
  ~GenerationRun();
  GenerationRun(const GenerationRun&) = delete;
  GenerationRun& operator=(const GenerationRun&) = delete;

  /// The next events, in order; nothing when none came within `limit`. Throws
  /// `std::runtime_error` when the engine failed, `RequestError` 503 when it shuts down.
  boost::asio::awaitable<std::vector<ChoiceEvent>> next(std::chrono::milliseconds limit);

  bool finished() const { return unfinished_ == 0; }
  int choices() const { return static_cast<int>(choices_.size()); }
  int prompt_tokens() const { return prompt_tokens_; }
  int completion_tokens() const;
  const ServedModel& model() const { return *model_; }

 private:
  struct Choice {
    base::CancellationToken cancellation;
    generation::TextAssembler text;
    bool finished = false;
  };

  std::shared_ptr<const ServedModel> model_;
  EventQueue queue_;
  std::vector<Choice> choices_;
  int unfinished_ = 0;
  int prompt_tokens_ = 0;
};

}  // namespace espalier::server::protocol
