#include "server/protocol/generation_run.h"

#include <stdexcept>
#include <utility>

#include "base/error.h"

namespace espalier::server::protocol {
namespace {

using generation::FinishReason;

constexpr std::size_t event_capacity = 16384;

}  // namespace

GenerationRun::GenerationRun(std::shared_ptr<const ServedModel> model, PreparedRun prepared,
                             boost::asio::any_io_executor executor)
    : model_(std::move(model)),
      queue_(std::move(executor), event_capacity),
      prompt_tokens_(prepared.prompt_tokens) {
  choices_.reserve(prepared.sequences.size());
  try {
    for (generation::GenerationRequest& request : prepared.sequences) {
      const base::CancellationToken cancellation = request.cancellation;
      const int choice = static_cast<int>(choices_.size());
      choices_.push_back({.cancellation = cancellation,
                          .text = generation::TextAssembler(*model_->text.tokenizer, prepared.stop,
                                                            true, prepared.kept_special)});
      model_->engine->submit(std::move(request), queue_.sink(choice, cancellation));
      ++unfinished_;
    }
  } catch (...) {
    for (const Choice& choice : choices_) choice.cancellation.cancel();
    throw;
  }
}

GenerationRun::~GenerationRun() {
  for (const Choice& choice : choices_) choice.cancellation.cancel();
}

boost::asio::awaitable<std::vector<ChoiceEvent>> GenerationRun::next(
    std::chrono::milliseconds limit) {
  std::vector<ChoiceEvent> result;
  std::vector<SequenceEvent> events = co_await queue_.next(limit);
  for (SequenceEvent& arrived : events) {
    Choice& choice = choices_[static_cast<std::size_t>(arrived.sequence)];
    if (choice.finished) continue;
    if (arrived.event.finish == FinishReason::error) throw std::runtime_error(arrived.event.error);
    if (arrived.event.finish == FinishReason::cancelled) {
      throw base::RequestError(503, "shutting_down", "The server is shutting down.");
    }
    generation::TextEvent event = choice.text.push(std::move(arrived.event));
    if (event.finish != FinishReason::none) {
      choice.finished = true;
      choice.cancellation.cancel();
      --unfinished_;
    }
    result.push_back({arrived.sequence, std::move(event)});
  }
  co_return result;
}

int GenerationRun::completion_tokens() const {
  int tokens = 0;
  for (const Choice& choice : choices_) tokens += choice.text.completion_tokens();
  return tokens;
}

}  // namespace espalier::server::protocol
