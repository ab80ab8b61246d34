#include "layers/laurel.h"

#include <numbers>

namespace espalier::layers {

namespace mx = mlx::core;

mx::array Laurel::operator()(const mx::array& stream, const mx::array& y) const {
  constexpr auto factor = static_cast<float>(1 / std::numbers::sqrt2);
  return (stream + norm(output(input(y)), y)) * mx::array(factor, stream.dtype());
}

}  // namespace espalier::layers
