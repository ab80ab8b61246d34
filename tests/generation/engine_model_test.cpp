// The engine with real models: what a request answers does not depend on what else happens.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "arrays/safetensors.h"
#include "generation/collector.h"
#include "generation/engine.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"
#include "support/trellis_checkpoint.h"

namespace espalier::generation {
namespace {

namespace fs = std::filesystem;
using tokenizer::TokenId;

struct Sequence {
  std::vector<TokenId> tokens;
  std::vector<std::uint32_t> logprob_bits;
  FinishReason finish;
  bool operator==(const Sequence&) const = default;
};

Sequence sequence_of(const Collected& collected) {
  Sequence sequence{.tokens = collected.tokens, .logprob_bits = {}, .finish = collected.finish};
  for (const float logprob : collected.logprobs) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &logprob, sizeof bits);
    sequence.logprob_bits.push_back(bits);
  }
  for (const auto& top : collected.top) {
    for (const TokenLogprob& entry : top) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &entry.logprob, sizeof bits);
      sequence.logprob_bits.push_back(bits);
    }
  }
  return sequence;
}

// 16 requests of different lengths, seeds and parameters.
std::vector<GenerationRequest> make_requests(int vocabulary) {
  std::mt19937 random(5);
  std::vector<GenerationRequest> requests(16);
  for (unsigned i = 0; i < requests.size(); ++i) {
    GenerationRequest& request = requests[i];
    const int length = 1 + static_cast<int>(i * i) / 4;
    for (int token = 0; token < length; ++token) {
      request.prompt.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(vocabulary)));
    }
    request.sampling.seed = i;
    request.sampling.temperature = i % 4 == 0 ? 0.0F : 0.9F;
    request.sampling.top_p = i % 3 == 0 ? 0.9F : 1.0F;
    request.sampling.repetition_penalty = i % 5 == 0 ? 1.2F : 1.0F;
    request.max_tokens = 4 + static_cast<int>(i * 7) % 13;
    request.logprobs = 2;
  }
  return requests;
}

std::vector<Sequence> run_alone(Engine& engine, const std::vector<GenerationRequest>& requests) {
  std::vector<Sequence> answers;
  for (const GenerationRequest& request : requests) {
    const Collector collector;
    engine.submit(request, collector.sink());
    answers.push_back(sequence_of(collector.wait()));
  }
  return answers;
}

// Submits in random order with random pauses.
std::vector<Sequence> run_together(Engine& engine, const std::vector<GenerationRequest>& requests,
                                   unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> order(requests.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::shuffle(order.begin(), order.end(), random);
  std::vector<Collector> collectors(requests.size());
  for (const std::size_t i : order) {
    engine.submit(requests[i], collectors[i].sink());
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 8));
  }
  std::vector<Sequence> answers;
  for (const Collector& collector : collectors) {
    answers.push_back(sequence_of(collector.wait()));
  }
  return answers;
}

void expect_independence(const fs::path& model) {
  std::vector<GenerationRequest> requests;
  std::vector<Sequence> alone;
  for (const int chunk : {512, 64, 7, 1}) {
    const auto engine = Engine::load(model, {.context = 512, .prefill_chunk = chunk});
    if (alone.empty()) {
      requests = make_requests(engine->info().vocabulary);
      alone = run_alone(*engine, requests);
    }
    const auto together = run_together(*engine, requests, static_cast<unsigned>(chunk));
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(together[i].tokens, alone[i].tokens) << "request " << i << ", chunk " << chunk;
      EXPECT_EQ(together[i], alone[i]) << "request " << i << ", chunk " << chunk;
      EXPECT_EQ(alone[i].tokens.size(), static_cast<std::size_t>(*requests[i].max_tokens));
    }
    EXPECT_EQ(engine->stats().kv_blocks_used, 0);
  }
}

TEST(EngineWithModel, AnswersOfATinyLlamaDoNotDependOnNeighboursOrChunks) {
  const auto fixture = tests::fixture_folder("tiny-text");
  if (!fixture) {
    GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is not there";
  }
  expect_independence(*fixture / "a/llama");
}

TEST(EngineWithModel, AnswersOfATinyGemmaDoNotDependOnNeighboursOrChunks) {
  const auto fixture = tests::fixture_folder("tiny-text");
  if (!fixture) {
    GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is not there";
  }
  expect_independence(*fixture / "a/gemma3_text");
}

TEST(EngineWithModel, AnswersOfTrellisWeightsDoNotDependOnNeighboursOrChunks) {
  const tests::TemporaryFolder folder;
  tests::TrellisCheckpoint().write(folder.path() / "coded", folder.path() / "dense");
  expect_independence(folder.path() / "coded");
}

TEST(EngineWithModel, AnswersOfTheDefaultModelDoNotDependOnNeighboursOrChunks) {
  const auto model = tests::test_model();
  if (!model) {
    GTEST_SKIP() << "the default model is not there";
  }
  expect_independence(*model);
}

TEST(EngineWithModel, GreedyTokensAreTheReferences) {
  const auto fixture = tests::fixture_folder("tiny-text");
  if (!fixture) {
    GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is not there";
  }
  const auto reference = arrays::open_safetensors(*fixture / "a/llama/ref.safetensors");
  const auto numbers = [&](const char* name) {
    const auto bytes = reference->find(name)->bytes;
    std::vector<std::int64_t> values(bytes.size() / sizeof(std::int64_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const auto input = numbers("input_ids");  // [2, 24]
  const auto greedy = numbers("greedy");    // [16]
  const auto engine = Engine::load(
      *fixture / "a/llama",
      {.prefill_chunk = 7, .kv_type = KvType::f32, .dtype = "f32", .activations = "f32"});
  GenerationRequest request;
  request.prompt.assign(input.begin(), input.begin() + 24);
  request.sampling.temperature = 0;
  request.max_tokens = 16;
  const Collector collector;
  engine->submit(request, collector.sink());
  EXPECT_EQ(collector.wait().tokens, std::vector<TokenId>(greedy.begin(), greedy.end()));
}

TEST(EngineWithModel, CancellationFreesKvMemoryAndLeavesNeighboursAlone) {
  const auto fixture = tests::fixture_folder("tiny-text");
  if (!fixture) {
    GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is not there";
  }
  const auto engine = Engine::load(*fixture / "a/llama", {.prefill_chunk = 4});
  std::vector<GenerationRequest> requests = make_requests(engine->info().vocabulary);
  const std::vector<Sequence> alone = run_alone(*engine, requests);
  // A copy of each request is cancelled after a while, some in their prefill, some later.
  std::vector<Collector> kept(requests.size());
  std::vector<Collector> cancelled(requests.size());
  std::vector<GenerationRequest> copies = requests;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    copies[i].cancellation = base::CancellationToken();
    copies[i].max_tokens = 300;
    engine->submit(copies[i], cancelled[i].sink());
    engine->submit(requests[i], kept[i].sink());
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    copies[i].cancellation.cancel();
    const FinishReason finish = cancelled[i].wait().finish;
    EXPECT_TRUE(finish == FinishReason::cancelled || finish == FinishReason::length);
    EXPECT_EQ(sequence_of(kept[i].wait()), alone[i]) << i;
  }
  EXPECT_EQ(engine->stats().kv_blocks_used, 0);
}

}  // namespace
}  // namespace espalier::generation
