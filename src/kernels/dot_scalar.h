#pragma once

#include <cstdint>

namespace espalier::kernels {

/// Integer dot products of `linear_kernel.h` on one lane.
struct ScalarDot {
  static constexpr int tile_lanes = 1;
  static constexpr int tile_rows = 1;
  static constexpr int signed_offset = 0;
  static constexpr bool keeps_halves = false;

  class Sum {
   public:
    void add(std::int32_t codes, std::int32_t x) {
      for (int shift = 0; shift < 32; shift += 8) {
        sum_ += ((codes >> shift) & 0xFF) * static_cast<std::int8_t>(x >> shift);
      }
    }
    void add_signed(std::int32_t values, std::int32_t x) {
      for (int shift = 0; shift < 32; shift += 8) {
        sum_ += static_cast<std::int8_t>(values >> shift) * static_cast<std::int8_t>(x >> shift);
      }
    }
    void fold() {}
    void fold_scaled(std::int32_t scale) {
      scaled_ += scale * sum_;
      sum_ = 0;
    }
    std::int32_t total() const { return sum_ + scaled_; }

   private:
    std::int32_t sum_ = 0;
    std::int32_t scaled_ = 0;
  };

  class WideSum {
   public:
    void add(std::int32_t codes, std::int32_t x) {
      sum_ += static_cast<std::int16_t>(codes) * static_cast<std::int16_t>(x) +
              (codes >> 16) * (x >> 16);
    }
    std::int32_t total() const { return sum_; }

   private:
    std::int32_t sum_ = 0;
  };
};

}  // namespace espalier::kernels
