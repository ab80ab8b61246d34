#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mlx/backend/cpu/encoder.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace espalier::kernels {

/// Memory for the outputs of a node: fresh, unless its work knows better.
template <class Work>
void allocate_outputs(const Work& work, const std::vector<mlx::core::array>& inputs,
                      std::vector<mlx::core::array>& outputs) {
  if constexpr (requires { work.allocate(inputs, outputs); }) {
    work.allocate(inputs, outputs);
  } else {
    for (auto& output : outputs) {
      output.set_data(mlx::core::allocator::malloc(output.nbytes()));
    }
  }
}

/// An MLX node whose work is a function object, run on the CPU stream's thread. `Work` has
///   static constexpr const char* name;
///   void operator()(const std::vector<array>& inputs, std::vector<array>& outputs) const;
/// and, where outputs are not simply fresh memory (a pool updated in place),
///   void allocate(const std::vector<array>& inputs, std::vector<array>& outputs) const;
/// The arrays passed to the call are views that MLX keeps alive until it returns; inputs may be
/// strided (see `row_contiguous`).
template <class Work>
class CpuPrimitive : public mlx::core::Primitive {
 public:
  CpuPrimitive(mlx::core::Stream stream, Work work)
      : Primitive(stream), work_(std::make_shared<const Work>(std::move(work))) {}

  void eval_cpu(const std::vector<mlx::core::array>& inputs,
                std::vector<mlx::core::array>& outputs) override {
    allocate_outputs(*work_, inputs, outputs);
    mlx::core::cpu::get_command_encoder(stream()).dispatch(
        [work = work_, in = weak_copies(inputs), out = weak_copies(outputs)]() mutable {
          (*work)(in, out);
        });
  }

  void eval_gpu(const std::vector<mlx::core::array>&, std::vector<mlx::core::array>&) override {
    throw std::runtime_error(std::string("[") + Work::name + "] has no GPU implementation");
  }

  const char* name() const override { return Work::name; }

 private:
  static std::vector<mlx::core::array> weak_copies(const std::vector<mlx::core::array>& arrays) {
    std::vector<mlx::core::array> copies;
    copies.reserve(arrays.size());
    for (const auto& array : arrays) {
      copies.push_back(mlx::core::array::unsafe_weak_copy(array));
    }
    return copies;
  }

  std::shared_ptr<const Work> work_;
};

/// The work done at once on data that is there.
template <class Work>
std::vector<mlx::core::array> run_all_now(const Work& work, std::vector<mlx::core::Shape> shapes,
                                          const std::vector<mlx::core::Dtype>& dtypes,
                                          const std::vector<mlx::core::array>& inputs) {
  std::vector<mlx::core::array> outputs;
  outputs.reserve(shapes.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    outputs.emplace_back(std::move(shapes[i]), dtypes[i], nullptr, std::vector<mlx::core::array>());
  }
  allocate_outputs(work, inputs, outputs);
  work(inputs, outputs);
  for (const mlx::core::array& output : outputs) {
    output.set_status(mlx::core::array::Status::available);
  }
  return outputs;
}

/// The same with one output.
template <class Work>
mlx::core::array run_now(const Work& work, mlx::core::Shape shape, mlx::core::Dtype dtype,
                         const std::vector<mlx::core::array>& inputs) {
  std::vector<mlx::core::array> outputs;
  outputs.emplace_back(std::move(shape), dtype, nullptr, std::vector<mlx::core::array>());
  allocate_outputs(work, inputs, outputs);
  work(inputs, outputs);
  outputs.front().set_status(mlx::core::array::Status::available);
  return std::move(outputs.front());
}

/// Whether all arrays hold their data and no transformation of MLX follows them.
bool can_run_now(const std::vector<mlx::core::array>& inputs);

/// The node's one output, on the calling thread's default CPU stream. Computed at once by the
/// calling thread where `can_run_now`: a graph costs some 4 µs a node, and its walk is a third
/// thread that takes turns with those that compute; a small model's step has 150 nodes.
template <class Work>
mlx::core::array make_node(Work work, mlx::core::Shape shape, mlx::core::Dtype dtype,
                           std::vector<mlx::core::array> inputs) {
  if (can_run_now(inputs)) {
    return run_now(work, std::move(shape), dtype, inputs);
  }
  auto stream = mlx::core::default_stream(mlx::core::Device::cpu);
  return mlx::core::array(std::move(shape), dtype,
                          std::make_shared<CpuPrimitive<Work>>(stream, std::move(work)),
                          std::move(inputs));
}

/// As `make_node`, with several outputs.
template <class Work>
std::vector<mlx::core::array> make_nodes(Work work, std::vector<mlx::core::Shape> shapes,
                                         const std::vector<mlx::core::Dtype>& dtypes,
                                         const std::vector<mlx::core::array>& inputs) {
  if (can_run_now(inputs)) {
    return run_all_now(work, std::move(shapes), dtypes, inputs);
  }
  auto stream = mlx::core::default_stream(mlx::core::Device::cpu);
  return mlx::core::array::make_arrays(
      std::move(shapes), dtypes, std::make_shared<CpuPrimitive<Work>>(stream, std::move(work)),
      inputs);
}

/// `array` itself when its elements lie in row order without gaps, else a copy that does. For use
/// inside `Work::operator()`, where the data is there; copies one element at a time, since callers
/// pass contiguous arrays in all but odd cases.
mlx::core::array row_contiguous(const mlx::core::array& array);

}  // namespace espalier::kernels
