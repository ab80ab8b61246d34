#include "generation/session.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

namespace espalier::generation {
namespace {

struct StopMatch {
  std::size_t start;
  std::string_view stop;
};

/// The stop string that is complete first in `text`; of those ending together, the longest.
std::optional<StopMatch> find_stop(std::string_view text, const std::vector<std::string>& stops) {
  std::optional<StopMatch> best;
  for (const std::string& stop : stops) {
    const std::size_t start = text.find(stop);
    if (start == std::string_view::npos) {
      continue;
    }
    const std::size_t end = start + stop.size();
    const std::size_t best_end = best ? best->start + best->stop.size() : std::string_view::npos;
    if (end < best_end || (end == best_end && start < best->start)) {
      best = StopMatch{start, stop};
    }
  }
  return best;
}

/// Length of the longest end of `text` that is the beginning of a stop string.
std::size_t held_length(std::string_view text, const std::vector<std::string>& stops) {
  std::size_t held = 0;
  for (const std::string_view stop : stops) {
    for (std::size_t length = std::min(stop.size() - 1, text.size()); length > held; --length) {
      if (text.ends_with(stop.substr(0, length))) {
        held = length;
      }
    }
  }
  return held;
}

}  // namespace

struct TextAssembler::Impl {
  const tokenizer::Tokenizer* tokenizer = nullptr;
  std::unordered_set<tokenizer::TokenId> kept;  // special tokens that are text
  std::unique_ptr<tokenizer::StreamDecoder> decoder;
  std::vector<std::string> stop;
  std::string held;                // may yet become a stop string
  std::vector<TokenEvent> tokens;  // not handed out yet
  int completion_tokens = 0;
  bool finished = false;

  bool is_text(tokenizer::TokenId id) const {
    return kept.empty() || kept.contains(id) || !tokenizer->is_special(id);
  }

  /// Moves what may be shown of `held` into `event`, up to a stop string if there is one.
  void release(TextEvent& event) {
    if (const auto match = find_stop(held, stop)) {
      event.text = held.substr(0, match->start);
      event.finish = FinishReason::stop;
      event.stop_string = match->stop;
      return;
    }
    const std::size_t kept =
        event.finish == FinishReason::none ? held_length(held, stop) : std::size_t{0};
    event.text = held.substr(0, held.size() - kept);
    held.erase(0, held.size() - kept);
  }
};

TextAssembler::TextAssembler(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stop,
                             bool skip_special, std::unordered_set<tokenizer::TokenId> kept)
    : impl_(std::make_unique<Impl>()) {
  impl_->tokenizer = &tokenizer;
  impl_->decoder = tokenizer.stream(skip_special && kept.empty());
  impl_->kept = std::move(kept);
  std::erase(stop, std::string());
  impl_->stop = std::move(stop);
}

TextAssembler::~TextAssembler() = default;
TextAssembler::TextAssembler(TextAssembler&&) noexcept = default;
TextAssembler& TextAssembler::operator=(TextAssembler&&) noexcept = default;

TextEvent TextAssembler::push(TokenEvent event) {
  TextEvent result;
  if (impl_->finished) {
    return result;
  }
  result.finish = event.finish;
  result.error = event.error;
  if (event.token) {
    ++impl_->completion_tokens;
    if (event.finish != FinishReason::stop && impl_->is_text(*event.token)) {
      impl_->held += impl_->decoder->push(*event.token);
    }
  }
  if (event.finish != FinishReason::none) {
    impl_->held += impl_->decoder->finish();
  }
  if (event.token) {
    impl_->tokens.push_back(std::move(event));
  }
  impl_->release(result);
  impl_->finished = result.finish != FinishReason::none;
  if (impl_->finished || !result.text.empty()) {
    result.tokens = std::exchange(impl_->tokens, {});
  }
  return result;
}

int TextAssembler::completion_tokens() const { return impl_->completion_tokens; }

}  // namespace espalier::generation
