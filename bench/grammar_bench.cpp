// Times masks of constrained text: grammar_bench FOLDER, which holds a tokenizer.json and a
// tokenizer_config.json. Goes through texts of several grammars, at random among what is allowed
// and along a document, and prints, for each, the processor time in microseconds of masks and
// commits together, which a token costs, and how long an engine's thread waits for it when the
// model's step takes 3 ms.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "generation/constrained_text.h"
#include "grammar/grammar.h"
#include "grammar_works.h"

namespace {

using namespace espalier;
using tokenizer::TokenId;

constexpr int most_tokens = 300;
constexpr std::size_t text_limit = 4096;
constexpr auto step_of_the_model = std::chrono::milliseconds(3);

/// Processor time of this thread in microseconds: what else runs on the machine does not count.
double thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

double wall_time() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool is_allowed(std::span<const std::uint32_t> mask, std::size_t id) {
  return (mask[id / 32] >> (id % 32) & 1U) != 0;
}

/// Chooses the next token of a text.
class Choice {
 public:
  virtual ~Choice() = default;
  /// An allowed token; -1 for none.
  virtual TokenId next(std::span<const std::uint32_t> mask) = 0;
};

/// The first allowed token from a random place on.
class RandomChoice : public Choice {
 public:
  explicit RandomChoice(std::uint64_t seed) : random_(seed) {}

  TokenId next(std::span<const std::uint32_t> mask) override {
    const std::size_t count = mask.size() * 32;
    const std::size_t start = random_() % count;
    for (std::size_t step = 0; step < count; ++step) {
      const std::size_t id = (start + step) % count;
      if (is_allowed(mask, id)) return static_cast<TokenId>(id);
    }
    return -1;
  }

 private:
  std::mt19937_64 random_;
};

using TokenTable = std::unordered_map<std::string, TokenId>;

/// The longest allowed token that the document goes on with.
class DocumentChoice : public Choice {
 public:
  DocumentChoice(const TokenTable& tokens, std::string_view document)
      : tokens_(tokens), rest_(document) {}

  TokenId next(std::span<const std::uint32_t> mask) override {
    constexpr std::size_t longest = 40;
    for (std::size_t size = std::min(longest, rest_.size()); size > 0; --size) {
      const auto found = tokens_.find(std::string(rest_.substr(0, size)));
      if (found == tokens_.end() || !is_allowed(mask, static_cast<std::size_t>(found->second))) {
        continue;
      }
      rest_.remove_prefix(size);
      return found->second;
    }
    return -1;
  }

  std::string_view rest() const { return rest_; }

 private:
  const TokenTable& tokens_;
  std::string_view rest_;
};

struct Samples {
  std::vector<double> tokens;
  std::vector<double> waits;
};

/// What a token costs: its mask and going on by it.
void time_tokens(const grammar::Constraint& constraint, Choice& choice, Samples& samples) {
  const auto matcher = constraint.start();
  matcher->limit(text_limit);
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(matcher->mask_words()));
  for (int i = 0; i < most_tokens && !matcher->stopped(); ++i) {
    const double start = thread_time();
    matcher->mask(mask);
    const double masked = thread_time() - start;
    const TokenId id = choice.next(mask);
    if (id < 0) return;
    const double commit = thread_time();
    matcher->commit(id);
    samples.tokens.push_back(masked + thread_time() - commit);
  }
}

/// What an engine's thread waits behind each step of the model.
void time_waits(const grammar::Constraint& constraint, TokenId end, Choice& choice,
                Samples& samples) {
  generation::MaskWorker worker;
  auto matcher = constraint.start();
  matcher->limit(text_limit);
  const auto text =
      std::make_shared<generation::ConstrainedText>(std::move(matcher), false, std::vector{end});
  text->begin(worker);
  for (int i = 0; i < most_tokens; ++i) {
    std::this_thread::sleep_for(step_of_the_model);
    const double start = wall_time();
    text->wait();
    samples.waits.push_back(wall_time() - start);
    if (text->complete()) return;
    const TokenId id = choice.next(text->mask());
    if (id < 0) return;
    text->advance(worker, id);
  }
}

double quantile(std::vector<double>& values, double at) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto index = static_cast<std::size_t>(at * static_cast<double>(values.size()));
  return values[std::min(index, values.size() - 1)];
}

void print(const char* name, const char* kind, Samples& samples) {
  std::printf("%-24s %-9s %7zu %8.1f %8.1f %8.1f %8.0f %8.1f %8.1f\n", name, kind,
              samples.tokens.size(), quantile(samples.tokens, 0.5), quantile(samples.tokens, 0.99),
              quantile(samples.tokens, 0.999), quantile(samples.tokens, 1),
              quantile(samples.waits, 0.5), quantile(samples.waits, 0.999));
}

void append(Samples& all, const Samples& samples) {
  all.tokens.insert(all.tokens.end(), samples.tokens.begin(), samples.tokens.end());
  all.waits.insert(all.waits.end(), samples.waits.begin(), samples.waits.end());
}

struct Totals {
  Samples random;
  Samples documents;
};

void measure(grammar::Compiler& compiler, const TokenTable& tokens, TokenId end,
             const bench::GrammarWork& work, Totals& totals) {
  const auto constraint = compiler.compile(work.grammar);
  Samples random;
  Samples documents;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    RandomChoice choice(seed);
    time_tokens(*constraint, choice, random);
  }
  for (int i = 0; i < 10; ++i) {
    DocumentChoice choice(tokens, work.document);
    time_tokens(*constraint, choice, documents);
    if (!choice.rest().empty() && i == 0) {
      std::printf("%s: the document ends before %s\n", work.name.c_str(),
                  std::string(choice.rest().substr(0, 40)).c_str());
    }
  }
  RandomChoice waiting(1);
  time_waits(*constraint, end, waiting, random);
  DocumentChoice reading(tokens, work.document);
  time_waits(*constraint, end, reading, documents);
  print(work.name.c_str(), "random", random);
  print("", "document", documents);
  append(totals.random, random);
  append(totals.documents, documents);
}

TokenTable token_table(const tokenizer::Tokenizer& tokenizer) {
  TokenTable tokens;
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    tokens.emplace(tokenizer.token_bytes(id), id);
  }
  return tokens;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: grammar_bench FOLDER\n");
    return 2;
  }
  const auto tokenizer = tokenizer::load_tokenizer(argv[1]);
  const TokenId end = tokenizer->eos().value_or(0);
  const auto compiler = grammar::make_compiler(tokenizer, tokenizer->vocabulary_size(), {end});
  const double start = wall_time();
  compiler->compile({grammar::Notation::regex, "a", {}, {}});
  std::printf("%d tokens, their table in %.0f ms\n", tokenizer->vocabulary_size(),
              (wall_time() - start) / 1000);
  std::printf("%-24s %-9s %7s %8s %8s %8s %8s %8s %8s\n", "grammar", "text", "tokens", "median",
              "99 %", "99.9 %", "most", "wait", "99.9 %");
  const TokenTable tokens = token_table(*tokenizer);
  Totals totals;
  for (const bench::GrammarWork& work : bench::grammar_works(*compiler)) {
    measure(*compiler, tokens, end, work, totals);
  }
  print("all", "random", totals.random);
  print("", "document", totals.documents);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
