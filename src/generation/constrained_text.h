#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace espalier::generation {

/// A thread that computes masks while the engine's thread runs the model.
class MaskWorker {
 public:
  MaskWorker();
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  void post(std::function<void()> job);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

/// A constrained sequence of the engine: what may come next, computed one token ahead on the
/// worker. Where a single token may follow it is taken at once, without a step of the model.
class ConstrainedText : public std::enable_shared_from_this<ConstrainedText> {
 public:
  /// With `take_forced` unset, a token that alone may follow is left to the sampler as well, for
  /// its log-probability. Tokens in `end_tokens` are always left to it.
  ConstrainedText(std::unique_ptr<grammar::Matcher> matcher, bool take_forced,
                  std::vector<tokenizer::TokenId> end_tokens);

  /// Begins to compute what may come first, or after `id`. Only when nothing is being computed.
  void begin(MaskWorker& worker);
  void advance(MaskWorker& worker, tokenizer::TokenId id);

  /// Waits until all is computed, at most `limit`; true when it is.
  bool wait(std::chrono::microseconds limit);
  /// Waits until all is computed.
  void wait();

  // The following only when all is computed.

  /// The tokens that had to follow since the last call.
  std::vector<tokenizer::TokenId> take_forced();
  /// The text is complete.
  bool complete() const { return complete_; }
  /// What may come next, a bit for each token; of use unless the text is complete.
  std::span<const std::uint32_t> mask() const { return mask_; }
  /// Why no mask could be computed; empty when one was.
  const std::string& error() const { return error_; }

 private:
  void post(MaskWorker& worker, std::function<void()> commit);
  void look_ahead();
  bool take_if_forced();

  std::unique_ptr<grammar::Matcher> matcher_;
  const bool take_forced_;
  const std::vector<tokenizer::TokenId> end_tokens_;
  std::vector<std::uint32_t> mask_;
  std::vector<tokenizer::TokenId> forced_;
  bool complete_ = false;
  std::string error_;

  std::mutex mutex_;
  std::condition_variable computed_;
  bool ready_ = true;
};

}  // namespace espalier::generation
