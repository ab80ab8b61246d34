#include "chat/reasoning_budget.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "chat/text_cursor.h"

namespace espalier::chat {
namespace {

using tokenizer::TokenId;

struct Limit {
  int tokens;
  bool open;
  ReasoningMarks marks;
  std::vector<TokenId> close;  // what ends the reasoning
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  int width;
};

bool ends_with_any(const std::string& text, const std::vector<std::string>& marks) {
  return std::any_of(marks.begin(), marks.end(),
                     [&text](const std::string& mark) { return text.ends_with(mark); });
}

/// Whether text of one token or more may still become one of the marks.
bool may_become(std::string_view text, const std::vector<std::string>& marks) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return std::any_of(marks.begin(), marks.end(), [text](const std::string& mark) {
    return std::string_view(mark).starts_with(text);
  });
}

class BudgetMatcher : public grammar::Matcher {
 public:
  BudgetMatcher(std::shared_ptr<const Limit> limit, std::unique_ptr<grammar::Matcher> body)
      : limit_(std::move(limit)), body_(std::move(body)) {
    states_.push_back({.stage = limit_->open ? Stage::reasoning : Stage::start});
  }

  int mask_words() const override { return (limit_->width + 31) / 32; }

  void mask(std::span<std::uint32_t> words) override {
    const State& state = states_.back();
    const bool forced = state.stage == Stage::closing ||
                        (state.stage == Stage::reasoning && state.used >= limit_->tokens);
    if (forced) {
      const auto id = static_cast<std::size_t>(limit_->close[state.closed]);
      std::fill(words.begin(), words.end(), 0U);
      words[id / 32] |= 1U << (id % 32);
    } else if (body_) {
      body_->mask(words);
    } else {
      std::fill(words.begin(), words.end(), ~0U);
    }
  }

  void limit(std::size_t tokens) override {
    if (body_) body_->limit(tokens);
  }

  void commit(TokenId id) override {
    if (body_) body_->commit(id);
    State state = states_.back();
    advance(state, id);
    states_.push_back(std::move(state));
  }

  void rollback(int count) override {
    if (body_) body_->rollback(count);
    states_.resize(states_.size() - static_cast<std::size_t>(count));
  }

  bool stopped() const override { return body_ && body_->stopped(); }
  bool accepting() override { return body_ && body_->accepting(); }

 private:
  enum class Stage { start, reasoning, closing, after };

  struct State {
    Stage stage = Stage::start;
    int used = 0;            // tokens of the reasoning
    std::size_t closed = 0;  // tokens of its forced end
    std::string tail = {};   // the last bytes, to find marks in
  };

  void advance(State& state, TokenId id) const {
    if (state.stage == Stage::after) return;
    state.tail += limit_->tokenizer->token_bytes(id);
    switch (state.stage) {
      case Stage::start:
        if (ends_with_any(state.tail, limit_->marks.open)) {
          state.stage = Stage::reasoning;
        } else if (!may_become(state.tail, limit_->marks.open)) {
          state.stage = Stage::after;
        }
        break;
      case Stage::reasoning:
        ++state.used;
        if (closes(state.tail)) {
          state.stage = Stage::after;
        } else if (state.used > limit_->tokens) {
          state.closed = 1;
          state.stage = limit_->close.size() > 1 ? Stage::closing : Stage::after;
        }
        break;
      case Stage::closing:
        if (++state.closed == limit_->close.size()) state.stage = Stage::after;
        break;
      case Stage::after:
        break;
    }
    constexpr std::size_t kept = 64;
    if (state.tail.size() > 2 * kept) state.tail.erase(0, state.tail.size() - kept);
  }

  bool closes(const std::string& tail) const {
    return std::any_of(
        limit_->marks.close.begin(), limit_->marks.close.end(),
        [&tail](const std::string& mark) { return tail.find(mark) != std::string::npos; });
  }

  std::shared_ptr<const Limit> limit_;
  std::unique_ptr<grammar::Matcher> body_;
  std::vector<State> states_;
};

class BudgetConstraint : public grammar::Constraint {
 public:
  BudgetConstraint(Limit limit, std::shared_ptr<const grammar::Constraint> body)
      : limit_(std::make_shared<const Limit>(std::move(limit))), body_(std::move(body)) {}

  std::unique_ptr<grammar::Matcher> start() const override {
    return std::make_unique<BudgetMatcher>(limit_, body_ ? body_->start() : nullptr);
  }

 private:
  std::shared_ptr<const Limit> limit_;
  std::shared_ptr<const grammar::Constraint> body_;
};

}  // namespace

std::shared_ptr<const grammar::Constraint> limit_reasoning(
    const ReasoningBudget& budget, const ReasoningMarks& marks,
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int width,
    std::shared_ptr<const grammar::Constraint> body) {
  auto close = tokenizer->encode(marks.close.front(), tokenizer::SpecialTokens::recognise);
  return std::make_shared<BudgetConstraint>(Limit{.tokens = budget.tokens,
                                                  .open = budget.open,
                                                  .marks = marks,
                                                  .close = std::move(close),
                                                  .tokenizer = std::move(tokenizer),
                                                  .width = width},
                                            std::move(body));
}

}  // namespace espalier::chat
