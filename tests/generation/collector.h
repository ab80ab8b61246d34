#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "generation/request.h"

namespace espalier::generation {

/// Everything a request's sink was given.
struct Collected {
  std::vector<tokenizer::TokenId> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> top;
  FinishReason finish = FinishReason::none;
  std::string error;
};

/// A sink and the one who waits for its last event. Copies share one state.
class Collector {
 public:
  TokenSink sink() const {
    return [state = state_](TokenEvent event) {
      const std::lock_guard lock(state->mutex);
      Collected& collected = state->collected;
      if (collected.finish != FinishReason::none) {
        ++state->late_events;
      }
      if (event.token) {
        collected.tokens.push_back(*event.token);
        collected.logprobs.push_back(event.logprob);
        collected.top.push_back(event.top);
      }
      collected.finish = event.finish;
      collected.error = event.error;
      state->changed.notify_all();
    };
  }

  /// Waits for the last event; fails after a minute.
  Collected wait() const {
    std::unique_lock lock(state_->mutex);
    if (!state_->changed.wait_for(lock, std::chrono::minutes(1), [this] {
          return state_->collected.finish != FinishReason::none;
        })) {
      throw std::runtime_error("no last event came");
    }
    return state_->collected;
  }

  /// Events after the last one, which must not be.
  int late_events() const {
    const std::lock_guard lock(state_->mutex);
    return state_->late_events;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    Collected collected;
    int late_events = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace espalier::generation
