#include "generation/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ranges>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "generation/random.h"

namespace espalier::generation {
namespace {

using tokenizer::TokenId;

[[noreturn]] void refuse(const std::string& parameter, const std::string& expected) {
  throw base::RequestError(400, "invalid_value", parameter + " must be " + expected + ".",
                           parameter);
}

struct RowSummary {
  float maximum;
  bool has_nan;
};

// Independent lanes let the compiler vectorize what a single running maximum would not allow.
RowSummary summarize(std::span<const float> values) {
  constexpr std::size_t lanes = 16;
  std::array<float, lanes> maxima;
  maxima.fill(-std::numeric_limits<float>::infinity());
  std::array<int, lanes> nans{};
  const std::size_t whole = values.size() / lanes * lanes;
  for (std::size_t start = 0; start < whole; start += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float value = values[start + lane];
      maxima[lane] = value > maxima[lane] ? value : maxima[lane];
      nans[lane] |= static_cast<int>(value != value);
    }
  }
  RowSummary summary{-std::numeric_limits<float>::infinity(), false};
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    summary.maximum = std::max(summary.maximum, maxima[lane]);
    summary.has_nan |= nans[lane] != 0;
  }
  for (const float value : values.subspan(whole)) {
    summary.maximum = std::max(summary.maximum, value);
    summary.has_nan |= std::isnan(value);
  }
  return summary;
}

/// e^x for x in [-88, 0], to a relative error of about 1e-7 and 0 below -87.7. Unlike std::exp the
/// compiler vectorizes it.
inline float exponential(float x) {
  // Adding and subtracting 1.5 * 2^23 rounds to an integer n; x = n ln 2 + r, |r| <= (ln 2) / 2.
  constexpr float rounder = 12582912.0F;
  const float shifted = x * 1.44269504F + rounder;
  const float n = shifted - rounder;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float series = 1.0F / 5040;
  series = series * r + 1.0F / 720;
  series = series * r + 1.0F / 120;
  series = series * r + 1.0F / 24;
  series = series * r + 1.0F / 6;
  series = series * r + 1.0F / 2;
  series = series * r + 1.0F;
  series = series * r + 1.0F;
  // At n = -127 the exponent field is 0, which stands for a factor of 0.
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23;
  return series * std::bit_cast<float>(exponent);
}

/// Each token's probability relative to the most likely one's, whose logit is `maximum`. Two loops,
/// since the compiler makes a branch of a limit inside the second and then vectorizes nothing.
void fill_weights(std::span<const float> logits, float maximum, float temperature,
                  std::span<float> weights) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const float scaled = (logits[id] - maximum) / temperature;
    weights[id] = scaled < -88.0F ? -88.0F : scaled;
  }
  for (float& weight : weights) {
    weight = exponential(weight);
  }
}

/// The sum of `value(i)` for i in [0, count), in a fixed order that allows vectors.
template <typename Value>
double sum_of(std::size_t count, const Value& value) {
  constexpr std::size_t lanes = 8;
  std::array<double, lanes> sums{};
  const std::size_t whole = count / lanes * lanes;
  for (std::size_t start = 0; start < whole; start += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      sums[lane] += value(start + lane);
    }
  }
  for (std::size_t i = whole; i < count; ++i) {
    sums[i - whole] += value(i);
  }
  double sum = 0;
  for (const double lane : sums) {
    sum += lane;
  }
  return sum;
}

}  // namespace

void check_sampling(const SamplingParameters& parameters, int vocabulary) {
  // Within these limits no sum or product leaves the range of a float.
  constexpr float most_penalty = 1000;
  constexpr float most_bias = 1e30F;
  const auto bounded = [](float value, float most) { return std::abs(value) <= most; };
  if (!std::isfinite(parameters.temperature) || parameters.temperature < 0) {
    refuse("temperature", "a number of at least 0");
  }
  if (parameters.top_k < 0) {
    refuse("top_k", "0 or more");
  }
  if (!(parameters.top_p >= 0 && parameters.top_p <= 1)) {
    refuse("top_p", "between 0 and 1");
  }
  if (!(parameters.min_p >= 0 && parameters.min_p <= 1)) {
    refuse("min_p", "between 0 and 1");
  }
  if (!(parameters.repetition_penalty >= 1 / most_penalty &&
        parameters.repetition_penalty <= most_penalty)) {
    refuse("repetition_penalty", "between 0.001 and 1000");
  }
  if (!bounded(parameters.presence_penalty, most_penalty)) {
    refuse("presence_penalty", "between -1000 and 1000");
  }
  if (!bounded(parameters.frequency_penalty, most_penalty)) {
    refuse("frequency_penalty", "between -1000 and 1000");
  }
  int banned = 0;
  for (const auto& [id, bias] : parameters.logit_bias) {
    if (id < 0 || id >= vocabulary) {
      refuse("logit_bias", "for token ids below " + std::to_string(vocabulary) + " (it has " +
                               std::to_string(id) + ")");
    }
    const bool bans = bias == -std::numeric_limits<float>::infinity();
    if (!bans && !bounded(bias, most_bias)) {
      refuse("logit_bias", "made of numbers between -1e30 and 1e30");
    }
    banned += bans ? 1 : 0;
  }
  if (banned == vocabulary) {
    refuse("logit_bias", "such that some token is left");
  }
}

Sampler::Sampler(int vocabulary)
    : adjusted_(vocabulary), occurrences_(vocabulary), weights_(vocabulary) {}

Sample Sampler::sample(std::span<const float> logits, const SamplingParameters& parameters,
                       std::span<const TokenId> prompt, std::span<const TokenId> generated,
                       int logprobs, std::span<const std::uint32_t> mask) {
  const std::span<const float> values = adjust(logits, parameters, prompt, generated, mask);
  const RowSummary summary = summarize(values);
  if (summary.has_nan || !std::isfinite(summary.maximum)) {
    throw std::runtime_error("the model's logits are not finite");
  }
  Sample sample{};
  if (parameters.temperature == 0) {
    sample.token =
        static_cast<TokenId>(std::ranges::find(values, summary.maximum) - values.begin());
  } else {
    sample.token = draw(values, summary.maximum, parameters,
                        uniform(parameters.seed, prompt.size() + generated.size()));
  }
  if (logprobs >= 0) {
    add_logprobs(logits, logprobs, sample);
  }
  return sample;
}

std::span<const float> Sampler::adjust(std::span<const float> logits,
                                       const SamplingParameters& parameters,
                                       std::span<const TokenId> prompt,
                                       std::span<const TokenId> generated,
                                       std::span<const std::uint32_t> mask) {
  const bool penalized = parameters.repetition_penalty != 1 || parameters.presence_penalty != 0 ||
                         parameters.frequency_penalty != 0;
  if (!penalized && parameters.logit_bias.empty() && mask.empty()) {
    return logits;
  }
  std::ranges::copy(logits, adjusted_.begin());
  if (!mask.empty()) {
    exclude(mask);
  }
  for (const auto& [id, bias] : parameters.logit_bias) {
    adjusted_[id] += bias;
  }
  if (penalized) {
    penalize(parameters, prompt, generated);
  }
  return adjusted_;
}

void Sampler::exclude(std::span<const std::uint32_t> mask) {
  constexpr std::size_t width = 32;
  for (std::size_t start = 0; start < adjusted_.size(); start += width) {
    const std::uint32_t word = mask[start / width];
    const std::size_t count = std::min(width, adjusted_.size() - start);
    for (std::size_t bit = 0; word != ~std::uint32_t{0} && bit < count; ++bit) {
      if ((word >> bit & 1U) == 0) {
        adjusted_[start + bit] = -std::numeric_limits<float>::infinity();
      }
    }
  }
}

void Sampler::penalize(const SamplingParameters& parameters, std::span<const TokenId> prompt,
                       std::span<const TokenId> generated) {
  for (const TokenId id : generated) {
    ++occurrences_[id];
  }
  // A token is penalized at its first visit; -1 then marks it as done.
  const auto visit = [&](TokenId id) {
    int& count = occurrences_[id];
    if (count < 0) {
      return;
    }
    float& logit = adjusted_[id];
    logit =
        logit > 0 ? logit / parameters.repetition_penalty : logit * parameters.repetition_penalty;
    logit -= parameters.frequency_penalty * static_cast<float>(count);
    if (count > 0) {
      logit -= parameters.presence_penalty;
    }
    count = -1;
  };
  std::ranges::for_each(prompt, visit);
  std::ranges::for_each(generated, visit);
  for (const auto& tokens : {prompt, generated}) {
    for (const TokenId id : tokens) {
      occurrences_[id] = 0;
    }
  }
}

TokenId Sampler::draw(std::span<const float> logits, float maximum,
                      const SamplingParameters& parameters, double random) {
  fill_weights(logits, maximum, parameters.temperature, weights_);
  if (parameters.top_k > 0 && static_cast<std::size_t>(parameters.top_k) < logits.size()) {
    select_largest(logits, parameters.top_k);
    candidates_.clear();
    for (const TokenId id : largest_) {
      candidates_.push_back({id, weights_[id]});
    }
    std::ranges::fill(weights_, 0.0F);
    for (const Candidate& candidate : candidates_) {
      weights_[candidate.id] = candidate.weight;
    }
  }
  if (parameters.top_p < 1) {
    keep_nucleus(parameters.top_p);
  }
  if (parameters.min_p > 0) {
    for (float& kept : weights_) {
      kept = kept < parameters.min_p ? 0.0F : kept;
    }
  }
  return pick(random);
}

void Sampler::keep_nucleus(double top_p) {
  const double total = sum_of(weights_.size(), [&](std::size_t id) { return weights_[id]; });
  // All tokens below this weight together have at most 1 - p: none of them is needed. That leaves
  // few to select from.
  const double floor = (1 - top_p) * total / static_cast<double>(weights_.size());
  candidates_.clear();
  for (std::size_t id = 0; id < weights_.size(); ++id) {
    if (weights_[id] > 0 && weights_[id] >= floor) {
      candidates_.push_back({static_cast<TokenId>(id), weights_[id]});
    }
  }

  // Quickselect by weight: those before `first` are in, those from `last` on are out.
  double missing = top_p * total;
  auto first = candidates_.begin();
  auto last = candidates_.end();
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, [](const Candidate& a, const Candidate& b) {
      return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
    });
    double upper = 0;
    for (const Candidate& candidate : std::ranges::subrange(first, middle)) {
      upper += candidate.weight;
    }
    if (upper >= missing) {
      last = middle;
    } else {
      missing -= upper;
      first = middle;
    }
  }
  const Candidate least = *first;
  for (std::size_t id = 0; id < weights_.size(); ++id) {
    const bool kept = weights_[id] > least.weight ||
                      (weights_[id] == least.weight && static_cast<TokenId>(id) <= least.id);
    weights_[id] = kept ? weights_[id] : 0.0F;
  }
}

/// The token at `random` of the distribution function, whose sums are taken in two levels.
TokenId Sampler::pick(double random) {
  constexpr std::size_t width = 256;
  sums_.clear();
  double total = 0;
  for (std::size_t start = 0; start < weights_.size(); start += width) {
    const float* weights = weights_.data() + start;
    total += sum_of(std::min(width, weights_.size() - start),
                    [weights](std::size_t i) { return weights[i]; });
    sums_.push_back(total);
  }
  const double target = random * total;
  const auto group = std::ranges::upper_bound(sums_, target) - sums_.begin();
  double sum = group == 0 ? 0 : sums_[group - 1];
  TokenId chosen = -1;
  const std::size_t start = static_cast<std::size_t>(group) * width;
  for (std::size_t id = start; id < std::min(start + width, weights_.size()); ++id) {
    if (weights_[id] > 0) {
      // The last one of the group also takes what rounding left.
      chosen = static_cast<TokenId>(id);
      sum += weights_[id];
      if (sum > target) {
        break;
      }
    }
  }
  if (chosen < 0) {
    throw std::logic_error("[Sampler::pick] expected a token of positive weight");
  }
  return chosen;
}

void Sampler::add_logprobs(std::span<const float> logits, int count, Sample& sample) {
  const float maximum = summarize(logits).maximum;
  fill_weights(logits, maximum, 1, weights_);
  const double sum = sum_of(weights_.size(), [&](std::size_t id) { return weights_[id]; });
  const double normalizer = maximum + std::log(sum);
  const auto logprob = [&](TokenId id) { return static_cast<float>(logits[id] - normalizer); };
  sample.logprob = logprob(sample.token);
  select_largest(logits, std::min<std::size_t>(count, logits.size()));
  sample.top.reserve(largest_.size());
  for (const TokenId id : largest_) {
    sample.top.push_back({id, logprob(id)});
  }
}

void Sampler::select_largest(std::span<const float> values, std::size_t count) {
  largest_.resize(count);
  std::ranges::partial_sort_copy(
      std::views::iota(TokenId{0}, static_cast<TokenId>(values.size())), largest_,
      [&](TokenId a, TokenId b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
}

}  // namespace espalier::generation
