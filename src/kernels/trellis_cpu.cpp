#include "kernels/trellis_cpu.h"

#include <cstring>

#include "kernels/cpu_features.h"
#include "kernels/lanes_scalar.h"
#include "kernels/trellis_kernel.h"

namespace espalier::kernels {
namespace {

struct ScalarTrellis {
  using Lanes = ScalarLanes;
  using Sum = std::int64_t;
  static constexpr int tile_rows = 4;

  static constexpr int outputs_together = 1;

  template <int bits>
  static void states(const TrellisOperand& operand, const std::uint32_t* block, int group,
                     std::int32_t* states) {
    const int bit = (trellis_block_weights - 4 - 4 * group) * bits;
    const int word = bit >> 5;
    const std::uint64_t window =
        block[word] | static_cast<std::uint64_t>(block[(word + 1) % trellis_block_words(bits)])
                          << 32;
    for (int i = 0; i < 4; ++i) {
      states[i] = static_cast<std::int32_t>(window >> ((bit & 31) + (3 - i) * bits)) & operand.mask;
    }
  }
  static std::int32_t byte_sums(std::int32_t hash) {
    const auto bytes = static_cast<std::uint32_t>(hash);
    return static_cast<std::int32_t>((bytes & 0xFF) + ((bytes >> 8) & 0xFF) +
                                     ((bytes >> 16) & 0xFF) + (bytes >> 24)) -
           510;
  }
  template <TrellisActivations>
  static std::int32_t integer(std::int32_t q) {
    return q;
  }
  template <TrellisActivations>
  static Sum dot(Sum sum, std::int32_t hash, std::int32_t q) {
    return sum + std::int64_t{byte_sums(hash) + 510} * q;
  }
  template <TrellisActivations>
  static void exact_sums(const Sum* sums, std::int64_t centre, float* exact) {
    *exact = static_cast<float>(*sums - centre);
  }
  static std::int32_t pair_dot(std::int32_t sum, std::int32_t y, std::int32_t x) {
    return sum + static_cast<std::int16_t>(y) * static_cast<std::int16_t>(x) +
           (y >> 16) * (x >> 16);
  }
  static void transpose(std::int32_t*) {}
  static float to_float(std::int64_t a, std::int64_t b) { return static_cast<float>(a + b); }
};

}  // namespace

const TrellisCpu& trellis_cpu_scalar() {
  static constexpr TrellisCpu kernels = TrellisKernel<ScalarTrellis>::table();
  return kernels;
}

const TrellisCpu& trellis_cpu() {
  switch (instruction_set()) {
    case InstructionSet::avx512:
      return trellis_cpu_avx512();
    case InstructionSet::avx2:
      return trellis_cpu_avx2();
    default:
      return trellis_cpu_scalar();
  }
}

}  // namespace espalier::kernels
