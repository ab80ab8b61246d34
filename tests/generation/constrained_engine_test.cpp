// Constrained requests in the engine, with grammars that are lists of allowed tokens.

#include <gtest/gtest.h>

#include "collector.h"
#include "fake_model.h"
#include "generation/batching_engine.h"
#include "generation/sampler.h"

namespace espalier::generation {
namespace {

using tokenizer::TokenId;
using Script = std::vector<std::vector<TokenId>>;  // what may stand at each place

constexpr int words = FakeModel::vocabulary / 32;

std::vector<std::uint32_t> mask_of(const std::vector<TokenId>& allowed) {
  std::vector<std::uint32_t> mask(words);
  for (const TokenId id : allowed) mask[id / 32] |= 1U << (id % 32);
  return mask;
}

class ScriptMatcher : public grammar::Matcher {
 public:
  explicit ScriptMatcher(const Script& script) : script_(script) {}

  int mask_words() const override { return words; }
  void mask(std::span<std::uint32_t> mask) override {
    if (script_.at(place_).empty()) throw std::runtime_error("too complex");
    std::ranges::copy(mask_of(script_.at(place_)), mask.begin());
  }
  void commit(TokenId id) override {
    if (std::ranges::find(script_.at(place_), id) == script_.at(place_).end()) {
      throw std::runtime_error("not allowed");
    }
    ++place_;
  }
  void limit(std::size_t) override {}
  void rollback(int count) override { place_ -= count; }
  bool stopped() const override { return place_ == script_.size(); }
  bool accepting() override { return stopped(); }

 private:
  const Script& script_;
  std::size_t place_ = 0;
};

class ScriptConstraint : public grammar::Constraint {
 public:
  explicit ScriptConstraint(Script script) : script_(std::move(script)) {}
  std::unique_ptr<grammar::Matcher> start() const override {
    return std::make_unique<ScriptMatcher>(script_);
  }

 private:
  Script script_;
};

const Script script = {{5, 6, 7, 40},    {9},  {10}, {11}, {20, 21, 22, 63}, {33}, {2, 3, 4, 8},
                       {12, 13, 50, 51}, {14}, {15}};

GenerationRequest request_for(std::uint64_t seed) {
  GenerationRequest request;
  request.prompt = {3, 4, 5, 6};
  request.sampling.seed = seed;
  request.constraint = std::make_shared<ScriptConstraint>(script);
  return request;
}

/// The tokens that a sampler and a mask for each place give.
std::vector<TokenId> expected_tokens(const GenerationRequest& request) {
  Sampler sampler(FakeModel::vocabulary);
  std::vector<TokenId> generated;
  for (const auto& allowed : script) {
    std::vector<std::int32_t> history(request.prompt.begin(), request.prompt.end());
    history.insert(history.end(), generated.begin(), generated.end());
    const std::vector<float> logits = FakeModel::logits_after(history);
    generated.push_back(
        sampler.sample(logits, request.sampling, request.prompt, generated, -1, mask_of(allowed))
            .token);
  }
  return generated;
}

std::unique_ptr<Engine> fake_engine(FakeModel::Hook hook = {}) {
  return start_engine([hook] { return std::make_unique<FakeModel>(hook); },
                      {.max_running = 4, .prefill_chunk = 3});
}

Collected run(Engine& engine, GenerationRequest request) {
  const Collector collector;
  engine.submit(std::move(request), collector.sink());
  return collector.wait();
}

TEST(ConstrainedEngine, ChoosesAmongAllowedTokensAndEndsWhenComplete) {
  const auto engine = fake_engine();
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    const GenerationRequest request = request_for(seed);
    const Collected collected = run(*engine, request);
    EXPECT_EQ(collected.tokens, expected_tokens(request));
    EXPECT_EQ(collected.finish, FinishReason::stop);
  }
}

TEST(ConstrainedEngine, TokensWithoutAChoiceCostNoStepAndChangeNothing) {
  const auto engine = fake_engine();
  const GenerationRequest request = request_for(7);
  GenerationRequest stepwise = request;
  stepwise.logprobs = 0;
  const Collected slow = run(*engine, stepwise);
  const std::uint64_t slow_steps = engine->stats().steps_total;
  const Collected fast = run(*engine, request);
  const std::uint64_t fast_steps = engine->stats().steps_total - slow_steps;
  EXPECT_EQ(fast.tokens, slow.tokens);
  EXPECT_EQ(fast.finish, slow.finish);
  EXPECT_LT(fast_steps, slow_steps);
  EXPECT_LT(slow.logprobs[1], 0);  // of a token that had no rival in the grammar
}

TEST(ConstrainedEngine, NeighboursChangeNothing) {
  const auto engine = fake_engine();
  std::vector<Collector> collectors(8);
  for (std::uint64_t seed = 0; seed < collectors.size(); ++seed) {
    GenerationRequest request = request_for(seed);
    if (seed % 3 == 2) {
      request.constraint = nullptr;
      request.max_tokens = 9;
    }
    engine->submit(std::move(request), collectors[seed].sink());
  }
  for (std::uint64_t seed = 0; seed < collectors.size(); ++seed) {
    if (seed % 3 == 2) {
      GenerationRequest alone = request_for(seed);
      alone.constraint = nullptr;
      alone.max_tokens = 9;
      EXPECT_EQ(collectors[seed].wait().tokens, run(*engine, alone).tokens);
    } else {
      EXPECT_EQ(collectors[seed].wait().tokens, expected_tokens(request_for(seed)));
    }
  }
}

TEST(ConstrainedEngine, TheLimitHoldsAmongTokensWithoutAChoice) {
  const auto engine = fake_engine();
  GenerationRequest request = request_for(3);
  request.max_tokens = 3;
  const Collected collected = run(*engine, request);
  EXPECT_EQ(collected.tokens.size(), 3U);
  EXPECT_EQ(collected.finish, FinishReason::length);
}

TEST(ConstrainedEngine, AnEndTokenIsLeftToTheSampler) {
  const auto engine = fake_engine();
  GenerationRequest request = request_for(3);
  request.end_tokens = {10};
  const Collected collected = run(*engine, request);
  EXPECT_EQ(collected.tokens.size(), 3U);
  EXPECT_EQ(collected.finish, FinishReason::stop);
}

TEST(ConstrainedEngine, AGrammarThatFailsEndsItsRequestAlone) {
  const auto engine = fake_engine();
  GenerationRequest failing = request_for(3);
  failing.constraint = std::make_shared<ScriptConstraint>(Script{{5, 6}, {}, {7}});
  const Collector collector;
  engine->submit(failing, collector.sink());
  const GenerationRequest other = request_for(4);
  EXPECT_EQ(run(*engine, other).tokens, expected_tokens(other));
  const Collected failed = collector.wait();
  EXPECT_EQ(failed.finish, FinishReason::error);
  EXPECT_NE(failed.error.find("too complex"), std::string::npos);
}

TEST(ConstrainedEngine, CancellationEndsAConstrainedRequest) {
  const auto engine = fake_engine();
  GenerationRequest request = request_for(3);
  request.constraint = std::make_shared<ScriptConstraint>(Script(200, {5, 6}));
  request.max_tokens = 150;
  const Collector collector;
  engine->submit(request, [sink = collector.sink(), token = request.cancellation,
                           count = 0](TokenEvent event) mutable {
    if (++count == 5) token.cancel();
    sink(std::move(event));
  });
  EXPECT_EQ(collector.wait().finish, FinishReason::cancelled);
}

}  // namespace
}  // namespace espalier::generation
