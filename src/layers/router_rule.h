#pragma once

namespace espalier::layers {

/// How a token's experts are chosen from its router's logits, and weighed.
struct RouterRule {
  enum class Score {
    softmax,
    sigmoid,
    /// PhiMoE: the best two, each weighed by a softmax over those that come within a tolerance.
    sparse_mixer,
  };
  /// What a group of experts is worth: its best score, or the sum of its two best.
  enum class GroupScore { best, best_two };

  int experts;
  int chosen;  // per token
  Score score = Score::softmax;
  int groups = 1;         // consecutive experts of equal number
  int chosen_groups = 1;  // experts of the others cannot be chosen
  GroupScore group_score = GroupScore::best_two;
  bool normalize = false;     // chosen weights are divided by their sum
  float smallest_sum = 0.0F;  // ... but by no less than this
  float added_to_sum = 0.0F;  // ... plus this
  float scale = 1.0F;         // of the weights, last
  float tolerance = 0.0F;     // sparse_mixer
};

}  // namespace espalier::layers
