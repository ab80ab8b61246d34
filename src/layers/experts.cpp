#include "layers/experts.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/primitive.h"
#include "layers/router.h"

namespace espalier::layers {
namespace {

namespace mx = mlx::core;

/// One row that an expert takes.
struct Assignment {
  int row;
  float weight;
};

/// An array over fresh memory.
mx::array make_array(mx::Shape shape, mx::Dtype dtype) {
  mx::array array(std::move(shape), dtype, nullptr, {});
  array.set_data(mx::allocator::malloc(array.nbytes()));
  array.set_status(mx::array::Status::available);
  return array;
}

template <class Function>
void with_type(mx::Dtype dtype, Function&& function) {
  if (dtype == mx::float32) {
    function(float());
  } else if (dtype == mx::float16) {
    function(mx::float16_t());
  } else if (dtype == mx::bfloat16) {
    function(mx::bfloat16_t());
  } else {
    throw std::invalid_argument("[experts] expected f32, f16 or bf16 activations");
  }
}

/// The node of a mixture. Inputs: x [T, D], the router's logits f32 [T, experts], then the
/// correction bias, the experts' scales and the shared part's result [T, D] where there are any.
struct MixtureWork {
  static constexpr const char* name = "espalier::mixture";

  RouterRule rule;
  std::shared_ptr<const ExpertSource> experts;
  Activation activation;
  std::optional<ActivationFormat> activations;
  bool weights_scale_input;
  bool has_correction;
  bool has_scales;
  bool has_shared;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const mx::array x = kernels::row_contiguous(inputs[0]);
    if (x.size() == 0) {
      return;
    }
    const std::vector<std::vector<Assignment>> assignments = assign(inputs);
    std::vector<float> sums(x.size());
    if (has_shared) {
      add_shared(kernels::row_contiguous(inputs.back()), sums);
    }
    for (std::size_t i = 0; i < assignments.size(); ++i) {
      if (!assignments[i].empty()) {
        add_expert(experts->expert(static_cast<int>(i)), x, assignments[i], sums);
      }
    }
    with_type(x.dtype(), [&]<class T>(T) {
      std::transform(sums.begin(), sums.end(), outputs[0].data<T>(),
                     [](float sum) { return static_cast<T>(sum); });
    });
  }

 private:
  /// The rows of each expert, in order.
  std::vector<std::vector<Assignment>> assign(const std::vector<mx::array>& inputs) const {
    const mx::array logits = kernels::row_contiguous(inputs[1]);
    const std::vector<float> correction = numbers(inputs, 2, has_correction);
    const std::vector<float> scales = numbers(inputs, has_correction ? 3 : 2, has_scales);
    std::vector<std::vector<Assignment>> assignments(static_cast<std::size_t>(rule.experts));
    for (int row = 0; row < logits.shape(0); ++row) {
      const std::span<const float> scores(
          logits.data<float>() + static_cast<std::ptrdiff_t>(row) * rule.experts,
          static_cast<std::size_t>(rule.experts));
      for (const Choice& choice : choose_experts(scores, correction, rule)) {
        const float scale = has_scales ? scales[choice.expert] : 1.0F;
        assignments[choice.expert].push_back({row, choice.weight * scale});
      }
    }
    return assignments;
  }

  /// One number of each expert from an input that may be missing.
  std::vector<float> numbers(const std::vector<mx::array>& inputs, std::size_t index,
                             bool there) const {
    if (!there) {
      return {};
    }
    const auto* values = inputs.at(index).data<float>();
    return {values, values + rule.experts};
  }

  static void add_shared(const mx::array& shared, std::vector<float>& sums) {
    with_type(shared.dtype(), [&]<class T>(T) {
      const T* values = shared.data<T>();
      std::transform(values, values + sums.size(), sums.begin(),
                     [](T value) { return static_cast<float>(value); });
    });
  }

  /// The rows of x that an expert takes, one behind another.
  mx::array gather(const mx::array& x, const std::vector<Assignment>& rows) const {
    const int columns = x.shape(1);
    mx::array gathered = make_array({static_cast<int>(rows.size()), columns}, x.dtype());
    with_type(x.dtype(), [&]<class T>(T) {
      T* target = gathered.data<T>();
      for (const Assignment& assignment : rows) {
        const T* source = x.data<T>() + static_cast<std::ptrdiff_t>(assignment.row) * columns;
        if (weights_scale_input) {
          std::transform(source, source + columns, target, [&](T value) {
            return static_cast<T>(static_cast<float>(value) * assignment.weight);
          });
        } else {
          std::copy(source, source + columns, target);
        }
        target += columns;
      }
    });
    return gathered;
  }

  mx::array hidden(const Expert& expert, const mx::array& x) const {
    const bool gated = expert.input.size() == 2;
    const std::optional<kernels::Gate> gate =
        gated ? fused_gate(activation) : std::optional<kernels::Gate>();
    mx::array y = kernels::linear_now(x, expert.input,
                                      {.norm = std::nullopt,
                                       .bias = expert.input_bias,
                                       .gate = gate,
                                       .residual = std::nullopt,
                                       .activations = activations});
    if (gate) {
      return y;
    }
    if (!gated) {
      return kernels::elementwise_now(y, element_function(activation));
    }
    const int columns = y.shape(1) / 2;
    return kernels::elementwise_now(part(y, 0, columns), element_function(activation),
                                    part(y, columns, columns));
  }

  /// Some columns of y, copied.
  static mx::array part(const mx::array& y, int first, int columns) {
    mx::array result = make_array({y.shape(0), columns}, y.dtype());
    const std::size_t item = y.itemsize();
    for (int row = 0; row < y.shape(0); ++row) {
      const char* source =
          y.data<char>() + (static_cast<std::size_t>(row) * y.shape(1) + first) * item;
      std::memcpy(result.data<char>() + static_cast<std::size_t>(row) * columns * item, source,
                  columns * item);
    }
    return result;
  }

  void add_expert(const Expert& expert, const mx::array& x, const std::vector<Assignment>& rows,
                  std::vector<float>& sums) const {
    const mx::array y = kernels::linear_now(hidden(expert, gather(x, rows)), {expert.down},
                                            {.norm = std::nullopt,
                                             .bias = expert.down_bias,
                                             .gate = std::nullopt,
                                             .residual = std::nullopt,
                                             .activations = activations},
                                            true);
    const auto columns = static_cast<std::size_t>(x.shape(1));
    const auto* values = y.data<float>();
    for (const Assignment& assignment : rows) {
      const float weight = weights_scale_input ? 1.0F : assignment.weight;
      float* target = sums.data() + static_cast<std::size_t>(assignment.row) * columns;
      for (std::size_t i = 0; i < columns; ++i) {
        target[i] += weight * values[i];
      }
      values += columns;
    }
  }
};

}  // namespace

std::size_t Expert::bytes() const {
  std::size_t total = down.bytes();
  for (const kernels::PackedMatrix& matrix : input) {
    total += matrix.bytes();
  }
  return total;
}

std::size_t ResidentExperts::bytes() const {
  std::size_t total = 0;
  for (const Expert& expert : experts_) {
    total += expert.bytes();
  }
  return total;
}

namespace {

/// The shared part's result [T, D].
mx::array run_shared(const SharedExpert& part, const mx::array& x) {
  mx::array y = part.mlp.down_proj(part.mlp.hidden(x, nullptr));
  if (!part.gate) {
    return y;
  }
  return kernels::elementwise((*part.gate)(x), {.kind = kernels::ElementFunction::Kind::sigmoid},
                              y);
}

}  // namespace

mx::array Experts::operator()(const mx::array& x, const mx::array& routed) const {
  const mx::array read = latent ? latent->input(x) : x;
  std::vector<mx::array> inputs = {read, router(routed, {.f32_output = true})};
  if (correction_bias) {
    inputs.push_back(*correction_bias);
  }
  if (scales) {
    inputs.push_back(*scales);
  }
  const std::optional<mx::array> always =
      shared ? std::optional(run_shared(*shared, x)) : std::nullopt;
  const bool adds_shared = always && !latent;
  if (adds_shared) {
    inputs.push_back(*always);
  }
  const mx::array mixed =
      kernels::make_node(MixtureWork{.rule = rule,
                                     .experts = experts,
                                     .activation = activation,
                                     .activations = activations,
                                     .weights_scale_input = weights_scale_input,
                                     .has_correction = correction_bias.has_value(),
                                     .has_scales = scales.has_value(),
                                     .has_shared = adds_shared},
                         read.shape(), read.dtype(), std::move(inputs));
  return latent ? latent->output(mixed, {.residual = always}) : mixed;
}

std::size_t Experts::bytes() const {
  std::size_t total = router.bytes() + experts->bytes();
  if (latent) {
    total += latent->input.bytes() + latent->output.bytes();
  }
  if (shared) {
    total += shared->mlp.input.bytes() + shared->mlp.down_proj.bytes();
  }
  return total;
}

}  // namespace espalier::layers
