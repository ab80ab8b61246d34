#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "layers/experts.h"

namespace espalier::layers {

/// Packed experts of all layers, those used last, within a number of bytes. Any thread may use it.
class ExpertCache {
 public:
  explicit ExpertCache(std::size_t bytes) : limit_(bytes) {}

  /// The expert kept under `key`, else what `read` returns, which is kept if it fits.
  Expert get(std::pair<int, int> key, const std::function<Expert()>& read);

 private:
  struct Entry {
    std::pair<int, int> key;
    Expert expert;
    std::size_t bytes;
  };

  void make_room(std::size_t bytes);

  std::size_t limit_;
  std::size_t used_ = 0;
  std::list<Entry> entries_;  // used last first
  std::map<std::pair<int, int>, std::list<Entry>::iterator> index_;
  std::mutex mutex_;
};

/// Experts that stay in the checkpoint's mapped file until they are chosen.
class MappedExperts : public ExpertSource {
 public:
  /// `read` packs one expert from the file; `layer` tells this layer's from others in the cache.
  MappedExperts(int count, int layer, std::function<Expert(int)> read,
                std::shared_ptr<ExpertCache> cache)
      : count_(count), layer_(layer), read_(std::move(read)), cache_(std::move(cache)) {}

  int count() const override { return count_; }
  Expert expert(int index) const override {
    return cache_->get({layer_, index}, [&] { return read_(index); });
  }
  std::size_t bytes() const override { return 0; }

 private:
  int count_;
  int layer_;
  std::function<Expert(int)> read_;
  std::shared_ptr<ExpertCache> cache_;
};

}  // namespace espalier::layers
