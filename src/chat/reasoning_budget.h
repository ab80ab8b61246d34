#pragma once

#include <memory>

#include "chat/dialect.h"
#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace espalier::chat {

/// A limit on the tokens of the reasoning.
struct ReasoningBudget {
  int tokens = 0;
  bool open = false;  // the prompt has opened the reasoning
};

/// Texts whose reasoning is closed by force after so many tokens; what follows it `body` rules, or
/// nothing when that is null. `body` must itself know the reasoning that goes before. `width` is
/// that of the logits.
std::shared_ptr<const grammar::Constraint> limit_reasoning(
    const ReasoningBudget& budget, const ReasoningMarks& marks,
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int width,
    std::shared_ptr<const grammar::Constraint> body);

}  // namespace espalier::chat
