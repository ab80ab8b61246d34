#include "kernels/linear_cpu.h"

#include "kernels/lanes_scalar.h"
#include "kernels/linear_kernel.h"

namespace espalier::kernels {
namespace {

struct ScalarDot {
  static constexpr int tile_lanes = 1;
  static constexpr int tile_rows = 1;
  static constexpr int signed_offset = 0;

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
};

}  // namespace

const LinearCpu& linear_cpu_scalar() {
  static constexpr LinearCpu kernels = linear_kernels<ScalarLanes, ScalarDot>();
  return kernels;
}

const LinearCpu& linear_cpu() {
  switch (instruction_set()) {
    case InstructionSet::avx512:
      return linear_cpu_avx512();
    case InstructionSet::avx2:
      return linear_cpu_avx2();
    default:
      return linear_cpu_scalar();
  }
}

}  // namespace espalier::kernels
