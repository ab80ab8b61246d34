#include "generation/engine.h"

#include <atomic>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "generation/batching_engine.h"
#include "generation/collector.h"
#include "generation/fake_model.h"
#include "generation/sampler.h"

namespace espalier::generation {
namespace {

using tokenizer::TokenId;

std::unique_ptr<Engine> fake_engine(const EngineOptions& options = {}, FakeModel::Hook hook = {}) {
  return start_engine([&] { return std::make_unique<FakeModel>(std::move(hook)); }, options);
}

// A prompt without end and poison tokens.
std::vector<TokenId> make_prompt(int length, unsigned seed = 0) {
  std::mt19937 random(seed);
  std::vector<TokenId> prompt;
  for (int i = 0; i < length; ++i) {
    prompt.push_back(2 + static_cast<TokenId>(random() % 60));
  }
  return prompt;
}

GenerationRequest make_request(std::vector<TokenId> prompt, std::optional<int> max_tokens = {},
                               const SamplingParameters& sampling = {}) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling = sampling;
  return request;
}

// What the fake model and the sampler give one token after another, without any engine.
std::vector<TokenId> expected_tokens(const GenerationRequest& request, int count) {
  Sampler sampler(FakeModel::vocabulary);
  std::vector<TokenId> generated;
  while (static_cast<int>(generated.size()) < count) {
    std::vector<TokenId> all = request.prompt;
    all.insert(all.end(), generated.begin(), generated.end());
    generated.push_back(
        sampler
            .sample(FakeModel::logits_after(all), request.sampling, request.prompt, generated, -1)
            .token);
  }
  return generated;
}

Collected run(Engine& engine, GenerationRequest request) {
  const Collector collector;
  engine.submit(std::move(request), collector.sink());
  return collector.wait();
}

std::string refusal(Engine& engine, GenerationRequest request, int status) {
  try {
    engine.submit(std::move(request), [](TokenEvent) {});
  } catch (const base::RequestError& error) {
    EXPECT_EQ(error.status(), status);
    return error.code() + ": " + error.what();
  }
  return "accepted";
}

TEST(Engine, TellsWhatTheModelIs) {
  const auto engine = fake_engine({.context = 100});
  EXPECT_EQ(engine->info().family, "fake");
  EXPECT_EQ(engine->info().vocabulary, FakeModel::vocabulary);
  EXPECT_EQ(engine->info().context, 100);
  EXPECT_EQ(engine->info().trained_context, FakeModel::context);
  EXPECT_EQ(engine->info().weight_bytes, 12345U);
  EXPECT_EQ(engine->info().kv_bytes_per_token, 8U);  // two f16 heads of two elements
  EXPECT_EQ(engine->info().end_tokens, (std::vector<TokenId>{1}));
  EXPECT_EQ(fake_engine({.context = 100000})->info().context, FakeModel::context);
}

TEST(Engine, GeneratesUntilMaxTokens) {
  const auto engine = fake_engine();
  const GenerationRequest request = make_request(make_prompt(5), 40, {.seed = 3});
  const Collected collected = run(*engine, request);
  EXPECT_EQ(collected.tokens, expected_tokens(request, 40));
  EXPECT_EQ(collected.finish, FinishReason::length);
}

TEST(Engine, StopsAfterAnEndToken) {
  const auto engine = fake_engine();
  GenerationRequest request = make_request(make_prompt(5), 40, {.seed = 3});
  const std::vector<TokenId> all = expected_tokens(request, 40);
  request.end_tokens = {63, all[9]};
  std::size_t first = 0;
  while (all[first] != all[9]) ++first;
  const Collected stopped = run(*engine, request);
  EXPECT_EQ(stopped.tokens, std::vector<TokenId>(all.begin(), all.begin() + first + 1));
  EXPECT_EQ(stopped.finish, FinishReason::stop);
  request.ignore_end = true;
  EXPECT_EQ(run(*engine, request).tokens, all);
}

TEST(Engine, EndTokenAsLastTokenIsAStop) {
  const auto engine = fake_engine();
  GenerationRequest request = make_request(make_prompt(5), 1, {.temperature = 0});
  request.end_tokens = expected_tokens(request, 1);
  EXPECT_EQ(run(*engine, request).finish, FinishReason::stop);
}

TEST(Engine, GivesLogprobsWhenAsked) {
  const auto engine = fake_engine();
  GenerationRequest request = make_request(make_prompt(4), 3);
  request.logprobs = 2;
  const Collected collected = run(*engine, request);
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(collected.logprobs[i], 0);
    EXPECT_EQ(collected.top[i].size(), 2U);
  }
  request.logprobs = -1;
  EXPECT_EQ(run(*engine, request).top[0].size(), 0U);
}

TEST(Engine, TokensDoNotDependOnNeighboursOrChunks) {
  for (const int chunk : {1, 7, 64, 512}) {
    const auto engine = fake_engine({.max_running = 5, .prefill_chunk = chunk});
    std::vector<GenerationRequest> requests;
    std::vector<Collector> collectors(20);
    for (unsigned i = 0; i < collectors.size(); ++i) {
      requests.push_back(make_request(make_prompt(1 + static_cast<int>(i) * 9, i),
                                      1 + static_cast<int>(i * 7) % 50,
                                      {.temperature = i % 3 == 0 ? 0.0F : 1.0F, .seed = i}));
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      engine->submit(requests[i], collectors[i].sink());
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Collected collected = collectors[i].wait();
      EXPECT_EQ(collected.tokens, expected_tokens(requests[i], *requests[i].max_tokens))
          << "request " << i << ", chunk " << chunk;
      EXPECT_EQ(collectors[i].late_events(), 0);
    }
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.requests_total, 20U);
    EXPECT_EQ(stats.requests_finished, 20U);
    EXPECT_EQ(stats.running + stats.waiting, 0);
    EXPECT_EQ(stats.kv_blocks_used, 0);
    std::uint64_t prompt_tokens = 0;
    std::uint64_t generated_tokens = 0;
    for (const GenerationRequest& request : requests) {
      prompt_tokens += request.prompt.size();
      generated_tokens += *request.max_tokens;
    }
    EXPECT_EQ(stats.prompt_tokens_total, prompt_tokens);
    EXPECT_EQ(stats.generated_tokens_total, generated_tokens);
  }
}

TEST(Engine, TheContextEndsARequest) {
  const auto engine = fake_engine({.context = 17});
  EXPECT_EQ(run(*engine, make_request(make_prompt(16))).tokens.size(), 1U);
  const Collected collected = run(*engine, make_request(make_prompt(10)));
  EXPECT_EQ(collected.tokens.size(), 7U);
  EXPECT_EQ(collected.finish, FinishReason::length);
  EXPECT_EQ(run(*engine, make_request(make_prompt(10), 99)).tokens.size(), 7U);
}

TEST(Engine, RefusesWhatCannotRun) {
  const auto engine = fake_engine({.context = 17});
  const std::string overflow = refusal(*engine, make_request(make_prompt(17)), 400);
  EXPECT_TRUE(overflow.starts_with("context_length_exceeded: ")) << overflow;
  EXPECT_NE(overflow.find("exceeds the available context size"), std::string::npos) << overflow;
  EXPECT_NE(overflow.find("17"), std::string::npos) << overflow;
  EXPECT_NE(refusal(*engine, make_request({}), 400), "accepted");
  EXPECT_NE(refusal(*engine, make_request({FakeModel::vocabulary}), 400), "accepted");
  EXPECT_NE(refusal(*engine, make_request({-1}), 400), "accepted");
  EXPECT_NE(refusal(*engine, make_request({2}, 0), 400), "accepted");
  EXPECT_NE(refusal(*engine, make_request({2}, {}, {.top_p = 2}), 400), "accepted");
  EXPECT_EQ(engine->stats().requests_total, 0U);
}

// Blocks the engine in its first step until it is opened.
struct Gate {
  std::promise<void> entered;
  std::promise<void> open;
  FakeModel::Hook hook() {
    return [this, future = open.get_future().share(),
            first = std::make_shared<bool>(true)](const models::Batch&) {
      if (std::exchange(*first, false)) {
        entered.set_value();
        future.wait();
      }
    };
  }
};

TEST(Engine, RefusesMoreThanTheQueueHolds) {
  Gate gate;
  const auto engine = fake_engine({.max_running = 1, .max_waiting = 2}, gate.hook());
  std::vector<Collector> collectors(3);
  for (const Collector& collector : collectors) {
    engine->submit(make_request({2}, 2), collector.sink());
  }
  gate.entered.get_future().wait();
  EXPECT_TRUE(refusal(*engine, make_request({2}), 429).starts_with("queue_full"));
  EXPECT_EQ(engine->stats().running, 1);
  EXPECT_EQ(engine->stats().waiting, 2);
  gate.open.set_value();
  for (const Collector& collector : collectors) {
    EXPECT_EQ(collector.wait().finish, FinishReason::length);
  }
  EXPECT_EQ(run(*engine, make_request({2}, 2)).finish, FinishReason::length);
}

TEST(Engine, AQueueMayHaveNoLimitWorthMentioning) {
  const auto engine = fake_engine({.max_waiting = std::numeric_limits<int>::max()});
  EXPECT_EQ(run(*engine, make_request({2}, 2)).finish, FinishReason::length);
}

TEST(Engine, CancellationEndsAPrefillWithinOneStep) {
  GenerationRequest request = make_request(make_prompt(200), 5);
  std::atomic<int> steps = 0;
  const auto engine = fake_engine({.prefill_chunk = 10}, [&](const models::Batch&) {
    if (++steps == 3) {
      request.cancellation.cancel();
    }
  });
  const Collected collected = run(*engine, request);
  EXPECT_EQ(collected.finish, FinishReason::cancelled);
  EXPECT_TRUE(collected.tokens.empty());
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(engine->stats().kv_blocks_used, 0);
  EXPECT_EQ(engine->stats().requests_cancelled, 1U);
}

TEST(Engine, CancellationEndsADecodeAndLeavesNeighboursAlone) {
  GenerationRequest cancelled = make_request(make_prompt(3), 100);
  const GenerationRequest neighbour = make_request(make_prompt(4), 30);
  std::atomic<int> steps = 0;
  const auto engine = fake_engine({}, [&](const models::Batch&) {
    if (++steps == 10) {
      cancelled.cancellation.cancel();
    }
  });
  const Collector first;
  const Collector second;
  engine->submit(cancelled, first.sink());
  engine->submit(neighbour, second.sink());
  const Collected ended = first.wait();
  EXPECT_EQ(ended.finish, FinishReason::cancelled);
  EXPECT_LE(ended.tokens.size(), 10U);
  EXPECT_EQ(second.wait().tokens, expected_tokens(neighbour, 30));
  EXPECT_EQ(first.late_events(), 0);
}

TEST(Engine, CancellationEndsAWaitingRequest) {
  Gate gate;
  const auto engine = fake_engine({.max_running = 1}, gate.hook());
  const Collector running;
  const Collector waiting;
  engine->submit(make_request({2}, 100), running.sink());
  const GenerationRequest request = make_request({3}, 100);
  engine->submit(request, waiting.sink());
  gate.entered.get_future().wait();
  request.cancellation.cancel();
  gate.open.set_value();
  EXPECT_EQ(waiting.wait().finish, FinishReason::cancelled);
  EXPECT_EQ(running.wait().finish, FinishReason::length);
}

TEST(Engine, AFailedStepEndsWhoWasInItAndNobodyElse) {
  std::atomic<int> steps = 0;
  const auto engine = fake_engine({.max_running = 2}, [&](const models::Batch&) {
    if (++steps == 5) {
      throw std::runtime_error("device lost");
    }
  });
  std::vector<Collector> collectors(3);
  const GenerationRequest request = make_request(make_prompt(40), 20);
  for (const Collector& collector : collectors) {
    engine->submit(request, collector.sink());
  }
  int failed = 0;
  for (const Collector& collector : collectors) {
    const Collected collected = collector.wait();
    if (collected.finish == FinishReason::error) {
      ++failed;
      EXPECT_NE(collected.error.find("device lost"), std::string::npos);
    } else {
      EXPECT_EQ(collected.tokens, expected_tokens(request, 20));
    }
  }
  EXPECT_GE(failed, 1);
  EXPECT_LE(failed, 2);
  EXPECT_EQ(run(*engine, request).tokens, expected_tokens(request, 20));
  EXPECT_EQ(engine->stats().kv_blocks_used, 0);
}

TEST(Engine, LogitsThatAreNotFiniteEndTheirRequestAlone) {
  Gate gate;
  const auto engine = fake_engine({}, gate.hook());
  const Collector poisoned;
  const Collector healthy;
  const GenerationRequest request = make_request(make_prompt(4), 20);
  engine->submit(request, healthy.sink());
  engine->submit(make_request({5, FakeModel::poison}, 20), poisoned.sink());
  gate.open.set_value();
  EXPECT_EQ(poisoned.wait().finish, FinishReason::error);
  EXPECT_EQ(healthy.wait().tokens, expected_tokens(request, 20));
}

TEST(Engine, ASinkThatThrowsEndsItsRequestAlone) {
  const auto engine = fake_engine();
  engine->submit(make_request({2}, 200),
                 [](TokenEvent) { throw std::runtime_error("client gone"); });
  const GenerationRequest request = make_request(make_prompt(4), 20);
  EXPECT_EQ(run(*engine, request).tokens, expected_tokens(request, 20));
  EXPECT_TRUE(engine->drain(60));
  EXPECT_EQ(engine->stats().requests_cancelled, 1U);
}

TEST(Engine, ASinkMaySubmit) {
  const auto engine = fake_engine({.max_running = 1, .max_waiting = 0});
  const Collector second;
  engine->submit(make_request({2}, 3), [&](TokenEvent event) {
    if (event.finish != FinishReason::none) {
      engine->submit(make_request({3}, 3), second.sink());
    }
  });
  EXPECT_EQ(second.wait().tokens.size(), 3U);
}

TEST(Engine, DrainWaitsAndRefusesNewRequests) {
  Gate gate;
  const auto engine = fake_engine({}, gate.hook());
  const Collector collector;
  engine->submit(make_request({2}, 5), collector.sink());
  gate.entered.get_future().wait();
  EXPECT_FALSE(engine->drain(0.01));
  EXPECT_TRUE(refusal(*engine, make_request({2}), 503).starts_with("shutting_down"));
  gate.open.set_value();
  EXPECT_TRUE(engine->drain(60));
  EXPECT_EQ(collector.wait().finish, FinishReason::length);
}

TEST(Engine, DestructionEndsAllRequests) {
  Gate gate;
  auto engine = fake_engine({.max_running = 1}, gate.hook());
  std::vector<Collector> collectors(3);
  for (const Collector& collector : collectors) {
    engine->submit(make_request(make_prompt(9)), collector.sink());
  }
  gate.entered.get_future().wait();
  auto destroyed = std::async(std::launch::async, [&] { engine.reset(); });
  gate.open.set_value();
  destroyed.wait();
  for (const Collector& collector : collectors) {
    EXPECT_NE(collector.wait().finish, FinishReason::none);
  }
}

TEST(Engine, LoadErrorsReachTheCaller) {
  EXPECT_THROW(
      start_engine(
          []() -> std::unique_ptr<models::Model> { throw base::LoadError("no such file"); }, {}),
      base::LoadError);
}

TEST(Engine, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(fake_engine({.max_running = 0}), base::UsageError);
  EXPECT_THROW(fake_engine({.max_waiting = -1}), base::UsageError);
  EXPECT_THROW(fake_engine({.context = 1}), base::UsageError);
  EXPECT_THROW(fake_engine({.prefill_chunk = 0}), base::UsageError);
  EXPECT_THROW(Engine::load("nowhere", {.dtype = "int8"}), base::UsageError);
  EXPECT_THROW(Engine::load("nowhere", {.activations = "int4"}), base::UsageError);
}

TEST(Engine, StartsAndStopsRepeatedly) {
  for (int i = 0; i < 20; ++i) {
    const auto engine = fake_engine();
    EXPECT_EQ(run(*engine, make_request({2}, 2)).tokens.size(), 2U);
  }
}

}  // namespace
}  // namespace espalier::generation
