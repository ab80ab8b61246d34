#pragma once

#include <string>
#include <vector>

#include "grammar/grammar.h"

namespace espalier::bench {

/// A grammar to time masks with, and a text that follows it.
struct GrammarWork {
  std::string name;
  grammar::Grammar grammar;
  std::string document;
};

/// Schemas, expressions and forced tool calls as requests have them.
std::vector<GrammarWork> grammar_works(grammar::Compiler& compiler);

}  // namespace espalier::bench
