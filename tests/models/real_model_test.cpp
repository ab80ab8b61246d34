// The default model against a peer's greedy continuations.
#include <algorithm>
#include <fstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"
#include "mlx/mlx.h"
#include "models/model.h"
#include "support/fixtures.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;

/// Below this difference of the two best candidates' log-probabilities (in nats) the choice depends
/// on how activations are rounded: plain f32 arithmetic over the same weights reverses some of the
/// peer's choices up to 0.3 nats apart.
constexpr double decided = 0.6;

std::int32_t best_next(Model& model, state::KvPool& pool, state::SequenceState& state,
                       std::vector<std::int32_t> tokens) {
  const int rows = static_cast<int>(tokens.size());
  mx::array logits = model.forward({.tokens = std::move(tokens),
                                    .sequences = {{.first_row = 0, .rows = rows, .state = &state}},
                                    .logits_rows = {rows - 1}},
                                   pool);
  logits.eval();
  const float* row = logits.data<float>();
  return static_cast<std::int32_t>(std::max_element(row, row + logits.shape(1)) - row);
}

TEST(RealModel, ContinuesAsThePeerDoesWhereThePeerIsDecided) {
  const auto path = tests::test_model();
  const auto shared = tests::shared_folder();
  if (!path || !shared) {
    GTEST_SKIP() << "the default model or shared/bench/refs is absent";
  }
  nlohmann::json reference;
  std::ifstream(*shared / "bench/refs/smollm2-135m-q4_1.json") >> reference;
  const std::unique_ptr<Model> model = load_model(*path, {});
  constexpr int blocks = 16;
  state::KvPool pool(model->kv_layers(), blocks, mx::float16);
  for (const nlohmann::json& completion : reference.at("completions")) {
    state::SequenceState state(pool);
    std::vector<std::int32_t> next = completion.at("prompt_tokens");
    for (const nlohmann::json& step : completion.at("logprobs")) {
      const nlohmann::json& top = step.at("top");
      const std::int32_t expected = step.at("id");
      const std::int32_t best = best_next(*model, pool, state, next);
      if (top[0][1].get<double>() - top[1][1].get<double>() >= decided) {
        EXPECT_EQ(best, expected) << completion.at("prompt") << " after " << state.length()
                                  << " tokens";
      }
      next = {expected};
    }
  }
}

}  // namespace
}  // namespace espalier::models
