// Times masks of constrained text: grammar_bench FOLDER, which holds a tokenizer.json and a
// tokenizer_config.json. Walks at random through texts of several schemas and prints, for each,
// what compiling took and how long masks and commits took, in microseconds.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "grammar/grammar.h"

namespace {

using namespace espalier;
using tokenizer::TokenId;
using Clock = std::chrono::steady_clock;

struct Work {
  const char* name;
  grammar::Notation notation;
  const char* text;
};

constexpr Work works[] = {
    {"ten fields", grammar::Notation::json_schema,
     R"({"type":"object","properties":{"name":{"type":"string","maxLength":40},
      "age":{"type":"integer","minimum":0,"maximum":130},"height":{"type":"number"},
      "married":{"type":"boolean"},"born":{"type":"string","format":"date"},
      "email":{"type":"string","format":"email"},"colour":{"enum":["red","green","blue"]},
      "tags":{"type":"array","items":{"type":"string","maxLength":20},"maxItems":5},
      "address":{"type":"object","properties":{"city":{"type":"string","maxLength":40}},
      "required":["city"],"additionalProperties":false},"notes":{"type":"string"}},
      "required":["name","age","height","married","born","email","colour","tags","address",
      "notes"],"additionalProperties":false})"},
    {"any object", grammar::Notation::json_schema, R"({"type":"object"})"},
    {"recursion", grammar::Notation::json_schema,
     R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
      "value":{"type":"string","pattern":"^[a-z]{1,12}$"},"children":{"type":"array",
      "items":{"$ref":"#/$defs/node"}}},"required":["value","children"]}}})"},
    {"long strings", grammar::Notation::json_schema,
     R"({"type":"object","properties":{"text":{"type":"string","maxLength":5000}},
      "required":["text"],"additionalProperties":false})"},
};

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

class Walk {
 public:
  Walk(const grammar::Constraint& constraint, std::uint64_t seed)
      : matcher_(constraint.start()), words_(matcher_->mask_words()), random_(seed) {}

  void run(int most_tokens, std::vector<double>& masks, std::vector<double>& commits) {
    for (int i = 0; i < most_tokens && !matcher_->stopped(); ++i) {
      const auto start = Clock::now();
      matcher_->mask(words_);
      const auto masked = Clock::now();
      const TokenId id = pick();
      const auto picked = Clock::now();
      if (id < 0) return;
      matcher_->commit(id);
      masks.push_back(microseconds(masked - start));
      commits.push_back(microseconds(Clock::now() - picked));
    }
  }

 private:
  /// An allowed token, the first from a random place on; -1 for none.
  TokenId pick() {
    const std::size_t count = words_.size() * 32;
    const std::size_t start = random_() % count;
    for (std::size_t step = 0; step < count; ++step) {
      const std::size_t id = (start + step) % count;
      if ((words_[id / 32] >> (id % 32) & 1U) != 0) return static_cast<TokenId>(id);
    }
    return -1;
  }

  std::unique_ptr<grammar::Matcher> matcher_;
  std::vector<std::uint32_t> words_;
  std::mt19937_64 random_;
};

double quantile(std::vector<double>& values, double at) {
  std::ranges::sort(values);
  const auto index = static_cast<std::size_t>(at * static_cast<double>(values.size()));
  return values[std::min(index, values.size() - 1)];
}

void measure(grammar::Compiler& compiler, const Work& work) {
  const auto start = Clock::now();
  const auto constraint = compiler.compile({work.notation, work.text, {}});
  const double compiled = microseconds(Clock::now() - start);
  std::vector<double> masks;
  std::vector<double> commits;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Walk(*constraint, seed).run(300, masks, commits);
  }
  std::printf("%-14s %8.0f %8zu %8.1f %8.1f %8.1f %8.1f\n", work.name, compiled, masks.size(),
              quantile(masks, 0.5), quantile(masks, 0.99), quantile(masks, 0.999),
              quantile(commits, 0.5));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: grammar_bench FOLDER\n");
    return 2;
  }
  const auto tokenizer = tokenizer::load_tokenizer(argv[1]);
  const auto compiler = grammar::make_compiler(tokenizer, tokenizer->vocabulary_size(), {0});
  const auto start = Clock::now();
  compiler->compile({grammar::Notation::regex, "a", {}});
  std::printf("%d tokens, their table in %.0f ms\n", tokenizer->vocabulary_size(),
              microseconds(Clock::now() - start) / 1000);
  std::printf("%-14s %8s %8s %8s %8s %8s %8s\n", "grammar", "compile", "masks", "median", "99 %",
              "99.9 %", "commit");
  for (const Work& work : works) measure(*compiler, work);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
