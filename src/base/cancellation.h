#pragma once

#include <atomic>
#include <memory>

namespace espalier::base {

/// A flag shared by whoever started a piece of work and whoever does it. Copies share one flag.
/// Thread-safe.
class CancellationToken {
 public:
  CancellationToken() : flag_(std::make_shared<std::atomic<bool>>(false)) {}

  void cancel() const { flag_->store(true, std::memory_order_relaxed); }
  bool cancelled() const { return flag_->load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

}  // namespace espalier::base
