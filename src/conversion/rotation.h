#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace espalier::conversion {

/// `count` signs of the format's generator: 1 or -1.
std::vector<float> random_signs(int count, std::uint32_t seed, std::uint32_t lane);

/// A seeded rotation of the residual stream: v becomes H (signs * v) / sqrt(block), with Hadamard
/// matrices H of `block` numbers side by side. The block is the whole width where that is m * 2^k
/// with m of 1, 12, 20 or 28, else the largest power of two that divides it.
class Rotation {
 public:
  Rotation(int width, std::uint32_t seed);

  int width() const { return static_cast<int>(signs_.size()); }
  int block() const { return block_; }
  /// Rotates rows of `width` numbers.
  void apply(std::span<float> rows) const;

 private:
  std::vector<float> signs_;
  int block_;
};

}  // namespace espalier::conversion
