#include "kernels/in_place.h"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace espalier::kernels {

namespace mx = mlx::core;

void require_sole_owner(const std::function<bool()>& is_sole) {
  if (is_sole()) {
    return;
  }
  mx::synchronize(mx::default_stream(mx::Device::cpu));
  // A GPU's work lets go of its arrays in a thread of MLX, some time after it is done.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (mx::is_available(mx::Device::gpu) && !is_sole() &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (!is_sole()) {
    throw std::logic_error("[require_sole_owner] expected a state without other owners");
  }
}

void require_sole_owner(const mx::array& memory) {
  require_sole_owner([&] { return !memory.is_available() || memory.is_donatable(); });
}

void take_over(const mx::array& input, mx::array& output) {
  // All outputs of a node hold its inputs, so `is_donatable` says nothing here.
  require_sole_owner([&] { return input.data_shared_ptr().use_count() == 1; });
  output.copy_shared_buffer(input);
}

}  // namespace espalier::kernels
