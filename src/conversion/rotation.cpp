#include "conversion/rotation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "mlx/mlx.h"

namespace espalier::conversion {
namespace {

namespace mx = mlx::core;

/// Orders of the Hadamard matrices that MLX has beside powers of two.
constexpr std::array<unsigned, 4> base_orders = {1, 12, 20, 28};

int hadamard_block(int width) {
  const auto size = static_cast<unsigned>(width);
  const bool whole = std::ranges::any_of(base_orders, [&](unsigned order) {
    return size % order == 0 && std::has_single_bit(size / order);
  });
  return whole ? width : 1 << std::countr_zero(size);
}

}  // namespace

std::vector<float> random_signs(int count, std::uint32_t seed, std::uint32_t lane) {
  constexpr std::uint32_t step = 0x9E3779B9U;
  std::uint32_t state = seed ^ ((lane + 1) * step);
  std::vector<float> signs;
  for (int i = 0; i < count; ++i) {
    state += step;
    std::uint32_t z = state;
    z = (z ^ z >> 16) * 0x21F0AAADU;
    z = (z ^ z >> 15) * 0x735A2D97U;
    z ^= z >> 15;
    signs.push_back(z % 2 == 0 ? 1.0F : -1.0F);
  }
  return signs;
}

Rotation::Rotation(int width, std::uint32_t seed)
    : signs_(random_signs(width, seed, 0)), block_(hadamard_block(width)) {}

void Rotation::apply(std::span<float> rows) const {
  const std::size_t width = signs_.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] *= signs_[i % width];
  }
  const auto blocks = static_cast<int>(rows.size() / static_cast<std::size_t>(block_));
  const mx::array values(rows.begin(), {blocks, block_}, mx::float32);
  mx::array rotated =
      mx::contiguous(mx::hadamard_transform(values, 1.0F / std::sqrt(static_cast<float>(block_))));
  rotated.eval();
  std::copy_n(rotated.data<float>(), rows.size(), rows.begin());
}

}  // namespace espalier::conversion
