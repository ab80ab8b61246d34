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
    if constexpr (requires { work_->allocate(inputs, outputs); }) {
      work_->allocate(inputs, outputs);
    } else {
      for (auto& output : outputs) {
        output.set_data(mlx::core::allocator::malloc(output.nbytes()));
      }
    }
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

/// The node's one output, to be computed on the calling thread's default CPU stream.
template <class Work>
mlx::core::array make_node(Work work, mlx::core::Shape shape, mlx::core::Dtype dtype,
                           std::vector<mlx::core::array> inputs) {
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
  auto stream = mlx::core::default_stream(mlx::core::Device::cpu);
  return mlx::core::array::make_arrays(
      std::move(shapes), dtypes, std::make_shared<CpuPrimitive<Work>>(stream, std::move(work)),
      inputs);
}

/// The work done at once on data that is there: for use inside another `Work::operator()`.
template <class Work>
mlx::core::array run_now(const Work& work, mlx::core::Shape shape, mlx::core::Dtype dtype,
                         const std::vector<mlx::core::array>& inputs) {
  mlx::core::array output(std::move(shape), dtype, nullptr, {});
  output.set_data(mlx::core::allocator::malloc(output.nbytes()));
  output.set_status(mlx::core::array::Status::available);
  std::vector<mlx::core::array> outputs = {output};
  work(inputs, outputs);
  return output;
}

/// `array` itself when its elements lie in row order without gaps, else a copy that does. For use
/// inside `Work::operator()`, where the data is there; copies one element at a time, since callers
/// pass contiguous arrays in all but odd cases.
mlx::core::array row_contiguous(const mlx::core::array& array);

}  // namespace espalier::kernels
