#include "cli/answer.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace espalier::cli {
namespace {

using Clock = std::chrono::steady_clock;
using generation::FinishReason;
using generation::TokenEvent;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Carries events from the engine's thread to the one that prints.
class EventChannel {
 public:
  void push(TokenEvent event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    arrived_.notify_one();
  }

  TokenEvent pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !events_.empty(); });
    TokenEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<TokenEvent> events_;
};

}  // namespace

std::string finish_reason_name(FinishReason finish) {
  switch (finish) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::none:
    case FinishReason::error:
      break;
  }
  throw std::logic_error("[finish_reason_name] expected a finished answer");
}

Answer generate_answer(const server::protocol::ServedModel& model,
                       generation::GenerationRequest request, std::vector<std::string> stop,
                       const std::function<void(const std::string&)>& on_text) {
  Answer answer;
  answer.prompt_tokens = static_cast<int>(request.prompt.size());
  const base::CancellationToken cancellation = request.cancellation;
  // Shared with the sink: after a stop string the engine may still send events.
  const auto channel = std::make_shared<EventChannel>();
  generation::TextAssembler assembler(*model.text.tokenizer, std::move(stop));

  const Clock::time_point start = Clock::now();
  Clock::time_point first = start;
  Clock::time_point last = start;
  model.engine->submit(std::move(request),
                       [channel](TokenEvent event) { channel->push(std::move(event)); });
  while (answer.finish == FinishReason::none) {
    TokenEvent event = channel->pop();
    last = Clock::now();
    if (event.token) {
      if (answer.tokens.empty()) first = last;
      answer.tokens.push_back(*event.token);
    }
    const generation::TextEvent text = assembler.push(std::move(event));
    if (!text.text.empty()) {
      answer.text += text.text;
      on_text(text.text);
    }
    answer.finish = text.finish;
    if (text.finish == FinishReason::error) throw std::runtime_error(text.error);
  }
  cancellation.cancel();
  answer.timings = {seconds_between(start, first), seconds_between(first, last)};
  return answer;
}

}  // namespace espalier::cli
