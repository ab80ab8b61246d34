#include "generation/divergence.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/thread_pool.h"
#include "base/tile_counter.h"

namespace espalier::generation {
namespace {

double divergence(std::span<const float> a, std::span<const float> b) {
  const auto log_sum = [](std::span<const float> logits) {
    const float largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - largest);
    return largest + std::log(sum);
  };
  const double a_sum = log_sum(a);
  const double b_sum = log_sum(b);
  double result = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double log_p = a[i] - a_sum;
    result += std::exp(log_p) * (log_p - (b[i] - b_sum));
  }
  return std::max(result, 0.0);
}

}  // namespace

std::vector<double> divergences(const mlx::core::array& a, const mlx::core::array& b) {
  const auto rows = static_cast<std::size_t>(a.shape(0));
  const auto width = static_cast<std::size_t>(a.shape(1));
  std::vector<double> values(rows);
  base::TileCounter tiles(rows);
  base::compute_pool().run([&](int) {
    for (std::size_t row; tiles.next(row);) {
      values[row] = divergence({a.data<float>() + row * width, width},
                               {b.data<float>() + row * width, width});
    }
  });
  return values;
}

}  // namespace espalier::generation
