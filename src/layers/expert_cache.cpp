#include "layers/expert_cache.h"

namespace espalier::layers {

Expert ExpertCache::get(std::pair<int, int> key, const std::function<Expert()>& read) {
  const std::lock_guard lock(mutex_);
  if (const auto found = index_.find(key); found != index_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->expert;
  }
  Expert expert = read();
  const std::size_t bytes = expert.bytes();
  make_room(bytes);
  if (used_ + bytes <= limit_) {
    entries_.push_front({key, expert, bytes});
    index_[key] = entries_.begin();
    used_ += bytes;
  }
  return expert;
}

void ExpertCache::make_room(std::size_t bytes) {
  while (!entries_.empty() && used_ + bytes > limit_) {
    used_ -= entries_.back().bytes;
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace espalier::layers
