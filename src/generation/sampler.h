#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generation/request.h"
#include "tokenizer/tokenizer.h"

namespace espalier::generation {

/// The token chosen for one row of logits.
struct Sample {
  tokenizer::TokenId token;
  float logprob = 0.0F;           // only when log-probabilities were asked for
  std::vector<TokenLogprob> top;  // most likely first; equal ones by id
};

/// Throws `RequestError` 400 naming the parameter that is out of its range.
void check_sampling(const SamplingParameters& parameters, int vocabulary);

/// Chooses tokens. A result is a function of the arguments alone; the object only keeps buffers
/// between calls. Used from one thread at a time.
///
/// In this order: the constraint's mask, which leaves out tokens; logit bias; repetition penalty
/// (transformers': prompt and generated tokens; positive logits divided, others multiplied),
/// frequency and presence penalties (OpenAI's: generated tokens); temperature; top-k (exactly k,
/// equal ones by id); top-p (the fewest most likely tokens that together reach p of what top-k
/// left); min-p (at least min_p of the most likely token's probability); then the inverse
/// distribution function in id order, with the random number of seed and position. Temperature 0
/// takes the largest logit after the penalties, the lowest id of equal ones. Log-probabilities are
/// those of the logits as given.
class Sampler {
 public:
  explicit Sampler(int vocabulary);

  /// `logits` is [V]; the position of the new token is prompt.size() + generated.size(); `logprobs`
  /// as in `GenerationRequest`; bit i of `mask` says whether token i may be chosen, and an empty
  /// one allows all. Throws `std::runtime_error` when the logits hold a NaN or their maximum is
  /// infinite.
  Sample sample(std::span<const float> logits, const SamplingParameters& parameters,
                std::span<const tokenizer::TokenId> prompt,
                std::span<const tokenizer::TokenId> generated, int logprobs,
                std::span<const std::uint32_t> mask = {});

 private:
  struct Candidate {
    tokenizer::TokenId id;
    float weight;
  };

  std::span<const float> adjust(std::span<const float> logits, const SamplingParameters& parameters,
                                std::span<const tokenizer::TokenId> prompt,
                                std::span<const tokenizer::TokenId> generated,
                                std::span<const std::uint32_t> mask);
  void exclude(std::span<const std::uint32_t> mask);
  void penalize(const SamplingParameters& parameters, std::span<const tokenizer::TokenId> prompt,
                std::span<const tokenizer::TokenId> generated);
  tokenizer::TokenId draw(std::span<const float> logits, float maximum,
                          const SamplingParameters& parameters, double random);
  void keep_nucleus(double top_p);
  tokenizer::TokenId pick(double random);
  void add_logprobs(std::span<const float> logits, int count, Sample& sample);
  /// The `count` ids of the largest values in `largest_`, largest first, equal ones by id.
  void select_largest(std::span<const float> values, std::size_t count);

  std::vector<float> adjusted_;   // [V]
  std::vector<int> occurrences_;  // [V], zero between calls
  std::vector<float> weights_;    // [V], relative to the most likely token's; 0: not to be chosen
  std::vector<Candidate> candidates_;
  std::vector<double> sums_;
  std::vector<tokenizer::TokenId> largest_;
};

}  // namespace espalier::generation
