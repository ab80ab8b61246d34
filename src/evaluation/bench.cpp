#include "evaluation/bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/thread_pool.h"
#include "evaluation/sequence_runner.h"

namespace espalier::evaluation {
namespace {

using base::UsageError;
using Clock = std::chrono::steady_clock;

void check_options(const models::Model& model, const BenchOptions& options) {
  const bool negative = options.prompt < 0 || options.gen < 0 || options.depth < 0;
  if (negative || options.repeat < 1 || options.chunk < 1) {
    throw UsageError("the numbers of a benchmark cannot be negative, nor repetitions be none");
  }
  if (options.prompt == 0 && options.gen == 0) {
    throw UsageError("a benchmark without prompt and generated tokens measures nothing");
  }
  const int longest = std::max(options.prompt, options.gen);
  if (options.depth > model.descriptor().context - longest) {
    throw UsageError("depth " + std::to_string(options.depth) + " and " + std::to_string(longest) +
                     " tokens exceed the model's context of " +
                     std::to_string(model.descriptor().context));
  }
}

/// Tokens all over the vocabulary: what they say does not change the work.
std::vector<TokenId> some_tokens(int count, int vocabulary) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (TokenId& token : tokens) {
    state = state * 1664525U + 1013904223U;
    token = static_cast<TokenId>((state >> 8U) % static_cast<std::uint32_t>(vocabulary));
  }
  return tokens;
}

/// The maximum by several lanes, which compilers make vectors of, and where it is: a single running
/// maximum takes 3% of a decoding step at 262,144 tokens.
TokenId likeliest(const mlx::core::array& logits) {
  constexpr std::size_t lanes = 16;
  const std::span values(logits.data<float>(), logits.size());
  std::array<float, lanes> maxima;
  maxima.fill(values.front());
  const std::size_t whole = values.size() / lanes * lanes;
  for (std::size_t start = 0; start < whole; start += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float value = values[start + lane];
      maxima[lane] = value > maxima[lane] ? value : maxima[lane];
    }
  }
  float maximum = *std::ranges::max_element(maxima);
  for (const float value : values.subspan(whole)) maximum = std::max(maximum, value);
  const auto place = std::ranges::find(values, maximum) - values.begin();
  return static_cast<TokenId>(place % std::ssize(values));  // found nowhere: a NaN
}

double rate(int tokens, Clock::time_point start) {
  return tokens / std::chrono::duration<double>(Clock::now() - start).count();
}

/// One model, one setting.
class Bench {
 public:
  Bench(models::Model& model, const BenchOptions& options)
      : options_(options),
        runner_(model, options.depth + std::max(options.prompt, options.gen), options.kv_type),
        tokens_(some_tokens(std::max({options.depth, options.prompt, 1}),
                            model.descriptor().vocabulary)) {}

  double prefill(int count) {
    go_to_depth();
    const auto start = Clock::now();
    runner_.prefill(std::span(tokens_).first(count), options_.chunk);
    return rate(count, start);
  }

  double decode(int count) {
    go_to_depth();
    TokenId token = tokens_.front();
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) token = likeliest(runner_.feed({&token, 1}, 1));
    return rate(count, start);
  }

 private:
  void go_to_depth() {
    runner_.restart();
    if (options_.depth > 0) {
      runner_.prefill(std::span(tokens_).first(options_.depth), options_.chunk);
    }
  }

  const BenchOptions& options_;
  SequenceRunner runner_;
  std::vector<TokenId> tokens_;
};

nlohmann::json median_or_null(const std::vector<double>& samples) {
  return samples.empty() ? nlohmann::json() : nlohmann::json(median(samples));
}

}  // namespace

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  if (samples.size() % 2 == 1) return samples[middle];
  return (samples[middle - 1] + samples[middle]) / 2;
}

BenchResult bench(models::Model& model, const BenchOptions& options) {
  check_options(model, options);
  Bench bench(model, options);
  BenchResult result{.options = options, .prefill = {}, .decode = {}};
  const int kinds = (options.prompt > 0 ? 1 : 0) + (options.gen > 0 ? 1 : 0);
  int done = 0;
  const auto report = [&] {
    if (options.progress) options.progress(++done, kinds * options.repeat);
  };
  if (options.prompt > 0) {
    bench.prefill(options.prompt);
    for (int i = 0; i < options.repeat; ++i, report()) {
      result.prefill.push_back(bench.prefill(options.prompt));
    }
  }
  if (options.gen > 0) {
    bench.decode(1);
    for (int i = 0; i < options.repeat; ++i, report()) {
      result.decode.push_back(bench.decode(options.gen));
    }
  }
  return result;
}

nlohmann::json to_json(const BenchResult& result) {
  return {{"prefill_tokens_per_s", median_or_null(result.prefill)},
          {"decode_tokens_per_s", median_or_null(result.decode)},
          {"prefill_samples", result.prefill},
          {"decode_samples", result.decode},
          {"prompt", result.options.prompt},
          {"gen", result.options.gen},
          {"depth", result.options.depth},
          {"repeat", result.options.repeat},
          {"threads", base::compute_pool().size()}};
}

}  // namespace espalier::evaluation
