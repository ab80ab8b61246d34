// Every supported family against the reference logits of the tiny checkpoints.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arrays/safetensors.h"
#include "gtest/gtest.h"
#include "mlx/mlx.h"
#include "models/model.h"
#include "support/fixtures.h"
#include "support/text_families.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;
using Logits = std::vector<float>;  // [rows, V]

/// The reference outputs of one tiny checkpoint.
struct Reference {
  std::vector<std::vector<std::int32_t>> input_ids;  // [2][24]
  std::vector<Logits> logits;                        // [2][24 * V]
  std::vector<std::int32_t> greedy;
  std::vector<float> greedy_gap;
  float deviation = 0;  // standard deviation of the logits
};

template <typename T>
std::vector<T> values(const arrays::TensorFile& file, const char* name) {
  const arrays::TensorView* tensor = file.find(name);
  if (tensor == nullptr) {
    throw std::runtime_error(std::string("no tensor ") + name);
  }
  std::vector<T> result(tensor->bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor->bytes.data(), tensor->bytes.size());
  return result;
}

Reference read_reference(const std::filesystem::path& folder) {
  const auto file = arrays::open_safetensors(folder / "ref.safetensors");
  Reference reference;
  reference.greedy_gap = values<float>(*file, "greedy_gap");
  const auto ids = values<std::int64_t>(*file, "input_ids");
  const auto logits = values<float>(*file, "logits");
  for (std::size_t row = 0; row < 2; ++row) {
    const auto id = ids.begin() + static_cast<std::ptrdiff_t>(row * ids.size() / 2);
    reference.input_ids.emplace_back(id, id + static_cast<std::ptrdiff_t>(ids.size() / 2));
    const auto logit = logits.begin() + static_cast<std::ptrdiff_t>(row * logits.size() / 2);
    reference.logits.emplace_back(logit, logit + static_cast<std::ptrdiff_t>(logits.size() / 2));
  }
  for (const std::int64_t token : values<std::int64_t>(*file, "greedy")) {
    reference.greedy.push_back(static_cast<std::int32_t>(token));
  }
  double sum = 0;
  double squares = 0;
  for (const float logit : logits) {
    sum += logit;
    squares += static_cast<double>(logit) * logit;
  }
  const double count = static_cast<double>(logits.size());
  reference.deviation = static_cast<float>(std::sqrt(squares / count - sum * sum / count / count));
  return reference;
}

/// Some tokens of one sequence in a batch.
struct Piece {
  state::SequenceState* state;
  std::vector<std::int32_t> tokens;
};

/// The logits of all rows of one batch, a list for each piece.
std::vector<Logits> step(Model& model, state::KvPool& pool, const std::vector<Piece>& pieces) {
  Batch batch;
  for (const Piece& piece : pieces) {
    const int first = static_cast<int>(batch.tokens.size());
    const int rows = static_cast<int>(piece.tokens.size());
    batch.sequences.push_back({.first_row = first, .rows = rows, .state = piece.state});
    for (int row = 0; row < rows; ++row) {
      batch.logits_rows.push_back(first + row);
    }
    batch.tokens.insert(batch.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  }
  mx::array logits = model.forward(batch, pool);
  logits.eval();
  EXPECT_EQ(logits.shape(0), static_cast<int>(batch.tokens.size()));
  std::vector<Logits> result;
  const float* next = logits.data<float>();
  for (const Piece& piece : pieces) {
    const std::size_t size = piece.tokens.size() * static_cast<std::size_t>(logits.shape(1));
    result.emplace_back(next, next + size);
    next += size;
  }
  return result;
}

/// The logits of `tokens` fed in pieces of at most `chunk`.
Logits in_chunks(Model& model, state::KvPool& pool, const std::vector<std::int32_t>& tokens,
                 std::size_t chunk) {
  state::SequenceState state(pool);
  Logits all;
  for (std::size_t first = 0; first < tokens.size(); first += chunk) {
    const std::size_t last = std::min(first + chunk, tokens.size());
    const auto begin = tokens.begin();
    const std::vector<Logits> logits =
        step(model, pool,
             {{.state = &state,
               .tokens = {begin + static_cast<std::ptrdiff_t>(first),
                          begin + static_cast<std::ptrdiff_t>(last)}}});
    all.insert(all.end(), logits[0].begin(), logits[0].end());
  }
  return all;
}

std::int32_t best(const Logits& logits, std::size_t vocabulary) {
  const auto row = logits.end() - static_cast<std::ptrdiff_t>(vocabulary);
  return static_cast<std::int32_t>(std::max_element(row, logits.end()) - row);
}

class TinyText : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto checkpoint = tests::text_checkpoint(GetParam());
    if (!checkpoint) {
      GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
    }
    reference_ = read_reference(*checkpoint);
    model_ = load_model(*checkpoint, {.dtype = mx::float32});
    constexpr int blocks = 16;
    constexpr int slots = 3;
    pool_ = std::make_unique<state::KvPool>(
        model_->kv_layers(), blocks, mx::float32,
        state::RecurrentOptions{.layers = model_->recurrent_layers(), .slots = slots});
  }

  std::size_t vocabulary() const {
    return static_cast<std::size_t>(model_->descriptor().vocabulary);
  }

  Reference reference_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<state::KvPool> pool_;
};

/// Largest error of a logit, in standard deviations of the logits.
double tolerance(std::string_view family) {
  // The reference multiplies by decays that its checkpoint stores rounded to bf16.
  return family == "minimax" ? 3e-3 : 1e-3;
}

TEST_P(TinyText, LogitsAgreeWithTheReference) {
  for (std::size_t row = 0; row < reference_.input_ids.size(); ++row) {
    const Logits logits = in_chunks(*model_, *pool_, reference_.input_ids[row], 512);
    ASSERT_EQ(logits.size(), reference_.logits[row].size());
    float worst = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      // Written so that a NaN counts as wrong.
      const float error = std::abs(logits[i] - reference_.logits[row][i]);
      worst = error <= worst ? worst : error;
    }
    EXPECT_LE(worst / reference_.deviation, tolerance(GetParam())) << "row " << row;
  }
}

TEST_P(TinyText, GreedyTokensAgreeWithTheReference) {
  state::SequenceState state(*pool_);
  std::vector<std::int32_t> next = reference_.input_ids[0];
  for (std::size_t i = 0; i < reference_.greedy.size(); ++i) {
    if (reference_.greedy_gap[i] <= 1e-3) {
      break;
    }
    const Logits logits = step(*model_, *pool_, {{.state = &state, .tokens = next}})[0];
    ASSERT_EQ(best(logits, vocabulary()), reference_.greedy[i]) << "step " << i;
    next = {reference_.greedy[i]};
  }
}

TEST_P(TinyText, ChunksGiveTheSameBits) {
  const std::vector<std::int32_t>& tokens = reference_.input_ids[0];
  const Logits whole = in_chunks(*model_, *pool_, tokens, tokens.size());
  EXPECT_EQ(in_chunks(*model_, *pool_, tokens, 1), whole) << "one token at a time";
  EXPECT_EQ(in_chunks(*model_, *pool_, tokens, 5), whole) << "chunks of five";
}

TEST_P(TinyText, NeighboursDoNotChangeBits) {
  const std::vector<std::int32_t>& a = reference_.input_ids[0];
  const std::vector<std::int32_t>& b = reference_.input_ids[1];
  const Logits whole_a = in_chunks(*model_, *pool_, a, a.size());
  const Logits whole_b = in_chunks(*model_, *pool_, b, b.size());

  // a and b begin in pieces of seven and three; b starts anew as a third when a is half done.
  state::SequenceState first(*pool_);
  state::SequenceState second(*pool_);
  state::SequenceState third(*pool_);
  std::vector<Logits> got(3);
  std::vector<std::size_t> done(3);
  const auto piece = [&](std::size_t sequence, state::SequenceState& state,
                         const std::vector<std::int32_t>& tokens, std::size_t rows) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(done[sequence]);
    done[sequence] += rows;
    return Piece{.state = &state, .tokens = {begin, begin + static_cast<std::ptrdiff_t>(rows)}};
  };
  const auto keep = [&](const std::vector<Logits>& logits, const std::vector<std::size_t>& order) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      got[order[i]].insert(got[order[i]].end(), logits[i].begin(), logits[i].end());
    }
  };
  keep(step(*model_, *pool_, {piece(0, first, a, 7), piece(1, second, b, 3)}), {0, 1});
  keep(step(*model_, *pool_, {piece(1, second, b, 1), piece(0, first, a, 5)}), {1, 0});
  keep(step(*model_, *pool_,
            {piece(0, first, a, 1), piece(2, third, b, 11), piece(1, second, b, 9)}),
       {0, 2, 1});
  keep(step(*model_, *pool_,
            {piece(2, third, b, b.size() - 11), piece(1, second, b, b.size() - 13),
             piece(0, first, a, a.size() - 13)}),
       {2, 1, 0});
  EXPECT_EQ(got[0], whole_a);
  EXPECT_EQ(got[1], whole_b);
  EXPECT_EQ(got[2], whole_b);
}

TEST_P(TinyText, OnlyTheWantedRowsAreComputed) {
  const std::vector<std::int32_t>& tokens = reference_.input_ids[0];
  const Logits whole = in_chunks(*model_, *pool_, tokens, tokens.size());
  state::SequenceState state(*pool_);
  Batch batch{.tokens = {tokens.begin(), tokens.begin() + 10},
              .sequences = {{.first_row = 0, .rows = 10, .state = &state}},
              .logits_rows = {}};
  EXPECT_EQ(model_->forward(batch, *pool_).shape(0), 0);
  batch.tokens.assign(tokens.begin() + 10, tokens.end());
  batch.sequences[0].rows = static_cast<int>(batch.tokens.size());
  batch.logits_rows = {2, 13};
  mx::array logits = model_->forward(batch, *pool_);
  logits.eval();
  const std::size_t size = vocabulary();
  for (const std::size_t row : {std::size_t{0}, std::size_t{1}}) {
    const std::size_t position = row == 0 ? 12 : 23;
    EXPECT_EQ(std::memcmp(logits.data<float>() + row * size, whole.data() + position * size,
                          size * sizeof(float)),
              0);
  }
}

class MappedExperts : public TinyText {};

TEST_P(MappedExperts, GiveTheBitsOfResidentOnes) {
  const std::vector<std::int32_t>& tokens = reference_.input_ids[0];
  const Logits expected = in_chunks(*model_, *pool_, tokens, 512);
  model_ =
      load_model(*tests::text_checkpoint(GetParam()), {.dtype = mx::float32, .map_experts = true});
  EXPECT_EQ(in_chunks(*model_, *pool_, tokens, 512), expected);
  EXPECT_EQ(in_chunks(*model_, *pool_, tokens, 1), expected);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MappedExperts,
                         testing::Values("mixtral", "granitemoe", "gpt_oss", "gemma4_text_experts",
                                         "nemotron_h_latent"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Families, TinyText, testing::ValuesIn(tests::text_families),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace espalier::models
