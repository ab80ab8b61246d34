#include "generation/constrained_text.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

namespace espalier::generation {
namespace {

// So that a long text without a choice does not hold up other sequences' masks.
constexpr std::size_t forced_limit = 256;

}  // namespace

MaskWorker::MaskWorker() : thread_([this] { run(); }) {}

MaskWorker::~MaskWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void MaskWorker::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void MaskWorker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) {
      return;
    }
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

ConstrainedText::ConstrainedText(std::unique_ptr<grammar::Matcher> matcher, bool take_forced,
                                 std::vector<tokenizer::TokenId> end_tokens)
    : matcher_(std::move(matcher)),
      take_forced_(take_forced),
      end_tokens_(std::move(end_tokens)),
      mask_(matcher_->mask_words()) {}

void ConstrainedText::begin(MaskWorker& worker) {
  post(worker, [] {});
}

void ConstrainedText::advance(MaskWorker& worker, tokenizer::TokenId id) {
  post(worker, [this, id] { matcher_->commit(id); });
}

void ConstrainedText::post(MaskWorker& worker, std::function<void()> commit) {
  ready_ = false;
  worker.post([self = shared_from_this(), commit = std::move(commit)] {
    try {
      commit();
      self->look_ahead();
    } catch (const std::exception& error) {
      self->error_ = error.what();
    }
    {
      const std::lock_guard lock(self->mutex_);
      self->ready_ = true;
    }
    self->computed_.notify_one();
  });
}

void ConstrainedText::look_ahead() {
  do {
    complete_ = matcher_->stopped();
    if (complete_) {
      return;
    }
    matcher_->mask(mask_);
  } while (take_if_forced());
}

/// Goes on by the only token that may follow, if there is one that needs no sampler.
bool ConstrainedText::take_if_forced() {
  if (!take_forced_ || forced_.size() >= forced_limit) {
    return false;
  }
  const auto first = std::ranges::find_if(mask_, [](std::uint32_t word) { return word != 0; });
  if (first == mask_.end() || !std::has_single_bit(*first) ||
      std::any_of(first + 1, mask_.end(), [](std::uint32_t word) { return word != 0; })) {
    return false;
  }
  const auto id =
      static_cast<tokenizer::TokenId>((first - mask_.begin()) * 32 + std::countr_zero(*first));
  if (std::ranges::find(end_tokens_, id) != end_tokens_.end()) {
    return false;
  }
  matcher_->commit(id);
  forced_.push_back(id);
  return true;
}

bool ConstrainedText::wait(std::chrono::microseconds limit) {
  std::unique_lock lock(mutex_);
  return computed_.wait_for(lock, limit, [this] { return ready_; });
}

void ConstrainedText::wait() {
  std::unique_lock lock(mutex_);
  computed_.wait(lock, [this] { return ready_; });
}

std::vector<tokenizer::TokenId> ConstrainedText::take_forced() {
  return std::exchange(forced_, {});
}

}  // namespace espalier::generation
