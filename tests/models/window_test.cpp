// Layers that see a window or a chunk give KV blocks back; what they compute stays as it was.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "mlx/mlx.h"
#include "models/model.h"
#include "support/fixtures.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;

constexpr int tokens = 200;
constexpr int blocks = 8;

/// The logits of the last token, and the most KV blocks that the last group held.
struct Fed {
  std::vector<float> logits;
  int most_held = 0;
};

Fed feed(Model& model, const std::vector<state::KvLayerShape>& layers, int chunk) {
  state::KvPool pool(layers, blocks, mx::float32);
  state::SequenceState state(pool);
  Fed run;
  for (int first = 0; first < tokens; first += chunk) {
    const int rows = std::min(chunk, tokens - first);
    Batch batch{.tokens = {},
                .sequences = {{.first_row = 0, .rows = rows, .state = &state}},
                .logits_rows = {rows - 1}};
    for (int row = 0; row < rows; ++row) {
      batch.tokens.push_back(3 + (first + row) * 7 % 300);
    }
    mx::array logits = mx::contiguous(model.forward(batch, pool));
    logits.eval();
    run.logits.assign(logits.data<float>(), logits.data<float>() + logits.size());
    run.most_held = std::max(run.most_held, blocks - pool.free_blocks(pool.groups() - 1));
  }
  return run;
}

class Window : public testing::TestWithParam<const char*> {};

TEST_P(Window, PassedBlocksAreFreedWithoutChangingBits) {
  const auto folder = tests::fixture_folder("tiny-text");
  if (!folder) {
    GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
  }
  const std::unique_ptr<Model> model =
      load_model(*folder / "a" / GetParam(), {.dtype = mx::float32});
  const std::vector<state::KvLayerShape> limited = model->kv_layers();
  ASSERT_TRUE(std::ranges::any_of(limited, [](const auto& l) { return l.reach.limited(); }));
  std::vector<state::KvLayerShape> unlimited = limited;
  for (state::KvLayerShape& layer : unlimited) {
    layer.reach = {};
  }
  for (const int chunk : {1, 37}) {
    const Fed kept = feed(*model, unlimited, chunk);
    const Fed freed = feed(*model, limited, chunk);
    EXPECT_EQ(freed.logits, kept.logits) << "chunks of " << chunk;
    EXPECT_EQ(kept.most_held, (tokens + 31) / 32);
    // The windows are of 8 tokens.
    EXPECT_LE(freed.most_held, (8 + chunk + 31) / 32 + 1) << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Window,
                         testing::Values("gemma3_text", "gpt_oss", "llama4_text", "mistral",
                                         "mimo_v2_flash"));

}  // namespace
}  // namespace espalier::models
