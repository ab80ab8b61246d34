#pragma once

#include <functional>

#include "mlx/mlx.h"

namespace espalier::kernels {

/// For nodes that update memory of their own in place: the array must have no other owner, since
/// what another owner sees would change under it. Waits for queued work to let go of it, then
/// throws `std::logic_error` when it still has one.
void require_sole_owner(const std::function<bool()>& is_sole);

/// Before a node is made: no other owner outside the graph.
void require_sole_owner(const mlx::core::array& memory);

/// While a node is evaluated: makes `output` share `input`'s buffer, which must be its alone.
void take_over(const mlx::core::array& input, mlx::core::array& output);

}  // namespace espalier::kernels
