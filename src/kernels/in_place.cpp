#include "kernels/in_place.h"

#include <stdexcept>

namespace espalier::kernels {

namespace mx = mlx::core;

void require_sole_owner(const std::function<bool()>& is_sole) {
  if (is_sole()) {
    return;
  }
  mx::synchronize(mx::default_stream(mx::Device::cpu));
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
