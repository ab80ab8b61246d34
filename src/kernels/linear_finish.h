#pragma once

#include <cstdint>

#include "kernels/linear_cpu.h"
#include "kernels/vector_math.h"

namespace espalier::kernels {

template <class V>
inline typename V::Float activate(Activation activation, typename V::Float x) {
  switch (activation) {
    case Activation::silu:
      return silu<V>(x);
    case Activation::gelu_tanh:
      return gelu_tanh<V>(x);
    case Activation::gelu_erf:
      return gelu_erf<V>(x);
    case Activation::relu:
      return V::max(x, V::zero());
    default:
      return x;
  }
}

/// Finishes one row of a tile: all 16 lanes.
template <class V, class Residual, class Output>
inline void finish_row(const OutputTile& tile, const float* bias, const float* up_bias, int row,
                       const Residual* residual, Output* output) {
  for (int lane = 0; lane < band_rows; lane += V::width) {
    auto value = V::load(tile.sums + row * band_rows + lane);
    if (bias != nullptr) {
      value = V::add(value, V::load(bias + lane));
    }
    if (tile.up != nullptr) {
      auto up = V::load(tile.up + row * band_rows + lane);
      if (up_bias != nullptr) {
        up = V::add(up, V::load(up_bias + lane));
      }
      value = V::mul(activate<V>(tile.activation, value), up);
    }
    if (residual != nullptr) {
      value = V::add(value, V::load(residual + lane));
    }
    V::store(output + lane, value);
  }
}

template <class V, class Residual, class Output>
void finish_tile(const OutputTile& tile) {
  const auto* residual = static_cast<const Residual*>(tile.residual);
  auto* output = static_cast<Output*>(tile.output);
  if (tile.lanes == band_rows) {
    for (int row = 0; row < tile.rows; ++row) {
      finish_row<V>(tile, tile.bias, tile.up_bias, row,
                    residual == nullptr ? nullptr : residual + row * tile.stride,
                    output + row * tile.stride);
    }
    return;
  }
  // The last band of a matrix: what lies beyond its outputs may not be ours to touch.
  float bias[band_rows] = {};
  float up_bias[band_rows] = {};
  for (int lane = 0; lane < tile.lanes; ++lane) {
    bias[lane] = tile.bias == nullptr ? 0.0F : tile.bias[lane];
    up_bias[lane] = tile.up_bias == nullptr ? 0.0F : tile.up_bias[lane];
  }
  for (int row = 0; row < tile.rows; ++row) {
    Residual old[band_rows] = {};
    Output result[band_rows];
    for (int lane = 0; residual != nullptr && lane < tile.lanes; ++lane) {
      old[lane] = residual[row * tile.stride + lane];
    }
    finish_row<V>(tile, tile.bias == nullptr ? nullptr : bias,
                  tile.up_bias == nullptr ? nullptr : up_bias, row,
                  residual == nullptr ? nullptr : old, result);
    for (int lane = 0; lane < tile.lanes; ++lane) {
      output[row * tile.stride + lane] = result[lane];
    }
  }
}

template <class V>
void finish(const OutputTile& tile) {
  with_element(tile.residual_type, [&]<class Residual>(const Residual*) {
    with_element(tile.output_type,
                 [&]<class Output>(const Output*) { finish_tile<V, Residual, Output>(tile); });
  });
}

}  // namespace espalier::kernels
