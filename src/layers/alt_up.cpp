#include "layers/alt_up.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/elementwise.h"
#include "layers/row_work.h"

namespace espalier::layers {
namespace {

namespace mx = mlx::core;

/// out[b] = x[b] + sum over a of weights[b * streams + a] x[a], for each row's streams.
struct PredictRow {
  std::size_t streams;

  void operator()(const std::vector<RowView>& inputs, std::vector<float>& out) const {
    const auto& [x, weights] = std::pair(inputs[0], inputs[1]);
    const std::size_t width = x.size() / streams;
    std::ranges::copy(x, out.begin());
    for (std::size_t b = 0; b < streams; ++b) {
      for (std::size_t a = 0; a < streams; ++a) {
        const float weight = weights[b * streams + a];
        for (std::size_t i = 0; i < width; ++i) {
          out[b * width + i] += weight * x[a * width + i];
        }
      }
    }
  }
};

/// out[b] = predicted[b] + (1 + weights[b]) (changed - predicted[active]).
struct CorrectRow {
  std::size_t active;

  void operator()(const std::vector<RowView>& inputs, std::vector<float>& out) const {
    const RowView& predicted = inputs[0];
    const RowView& changed = inputs[1];
    const RowView& weights = inputs[2];
    const std::size_t width = changed.size();
    for (std::size_t b = 0; b < weights.size(); ++b) {
      for (std::size_t i = 0; i < width; ++i) {
        const float innovation = changed[i] - predicted[active * width + i];
        out[b * width + i] = predicted[b * width + i] + (1 + weights[b]) * innovation;
      }
    }
  }
};

/// x with `part` added to every stream but the first.
struct AddToOthersRow {
  void operator()(const std::vector<RowView>& inputs, std::vector<float>& out) const {
    const RowView& x = inputs[0];
    const RowView& part = inputs[1];
    std::ranges::copy(x, out.begin());
    for (std::size_t i = part.size(); i < x.size(); ++i) {
      out[i] += part[i % part.size()];
    }
  }
};

/// part * |first| / |part| with root mean squares for sizes.
struct ResizeRow {
  static double mean_square(const RowView& row) {
    double sum = 0;
    for (const float value : row) {
      sum += static_cast<double>(value) * value;
    }
    return sum / static_cast<double>(row.size());
  }

  void operator()(const std::vector<RowView>& inputs, std::vector<float>& out) const {
    constexpr double smallest = 1e-5;
    const double size = std::sqrt(std::max(mean_square(inputs[1]), smallest));
    const auto factor = static_cast<float>(std::sqrt(mean_square(inputs[0])) / size);
    std::ranges::transform(inputs[1], out.begin(), [&](float value) { return value * factor; });
  }
};

mx::array stream_of(const mx::array& x, int index, int width) {
  return mx::contiguous(mx::slice(x, {0, index * width}, {x.shape(0), (index + 1) * width}));
}

mx::array resized(const mx::array& part, const mx::array& first) {
  return by_rows(ResizeRow{}, first.shape(), first.dtype(), {first, part});
}

}  // namespace

mx::array AltUp::route(const mx::array& active) const {
  return kernels::elementwise(router(active, {.norm = &router_norm, .f32_output = true}),
                              {.kind = kernels::ElementFunction::Kind::tanh});
}

mx::array AltUp::predict(const mx::array& x) const {
  return by_rows(PredictRow{static_cast<std::size_t>(streams)}, x.shape(), x.dtype(),
                 {x, prediction(route(read(x)), {.f32_output = true})});
}

mx::array AltUp::read(const mx::array& x) const {
  return stream_of(x, active, x.shape(1) / streams);
}

mx::array AltUp::correct(const mx::array& predicted, const mx::array& active_stream) const {
  return by_rows(
      CorrectRow{static_cast<std::size_t>(active)}, predicted.shape(), predicted.dtype(),
      {predicted, active_stream, correction(route(active_stream), {.f32_output = true})});
}

mx::array AltUp::scaled(const mx::array& x) const {
  const mx::array stream = read(x);
  return output_scale ? stream * mx::astype(*output_scale, stream.dtype()) : stream;
}

mx::array AltUp::add_to_others(const mx::array& x, const mx::array& part) const {
  return by_rows(AddToOthersRow{}, x.shape(), x.dtype(), {x, part});
}

mx::array StreamSpread::operator()(const mx::array& x) const {
  std::vector<mx::array> streams = {x};
  for (const Linear& matrix : spread) {
    streams.push_back(resized(matrix(x), x));
  }
  return mx::concatenate(std::move(streams), 1);
}

mx::array StreamSpread::merged(const mx::array& x) const {
  const int count = static_cast<int>(merge.size()) + 1;
  const int width = x.shape(1) / count;
  const mx::array first = stream_of(x, 0, width);
  mx::array sum = first;
  for (int i = 1; i < count; ++i) {
    sum = sum + resized(merge[static_cast<std::size_t>(i - 1)](stream_of(x, i, width)), first);
  }
  return sum * mx::array(1.0F / static_cast<float>(count), x.dtype());
}

}  // namespace espalier::layers
