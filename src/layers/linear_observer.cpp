#include "layers/linear_observer.h"

#include <stdexcept>

namespace espalier::layers {
namespace {

thread_local LinearObserver* observer = nullptr;

}  // namespace

LinearObserver::LinearObserver() {
  if (observer != nullptr) throw std::logic_error("[LinearObserver] expected no other one");
  observer = this;
}

LinearObserver::~LinearObserver() { observer = nullptr; }

LinearObserver* LinearObserver::current() { return observer; }

}  // namespace espalier::layers
