#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace espalier::generation {

struct SchedulerOptions {
  int max_running;      // requests computed in one step
  int prefill_chunk;    // prompt tokens in one step, of all requests together
  int kv_blocks;        // of the pool
  int kv_block_tokens;  // tokens of one KV block
};

/// What one request does in a step.
struct ScheduledRows {
  std::uint64_t id;
  int position;  // of the first row: tokens of the sequence computed before
  int rows;
  bool samples;  // the last row's logits give the next token

  bool operator==(const ScheduledRows&) const = default;
};

/// Decides what each step computes; pure bookkeeping, used from one thread.
///
/// Requests start in the order they came, as soon as fewer than `max_running` run and the KV blocks
/// for everything they may ever hold are free, so that none runs out of memory later. In a step
/// every request whose prompt is done has one row, or one for each token that is known, and the
/// others share `prefill_chunk` prompt
/// tokens, the oldest first.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  /// Adds a request at the end of the queue. `most_tokens`: what its KV memory may come to hold, at
  /// least `prompt_tokens` and at most what the pool holds.
  void enqueue(std::uint64_t id, int prompt_tokens, int most_tokens);

  /// Lets waiting requests start and returns the next step's rows, which count as computed from
  /// then on. Empty only when there are no requests.
  std::vector<ScheduledRows> plan();

  /// Notes that `tokens` more tokens of a running request, whose prompt is computed, are known than
  /// the one that each step gives it; they are computed together.
  void extend(std::uint64_t id, int tokens);

  /// Takes a request out, waiting or running.
  void remove(std::uint64_t id);

  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  int reserved_kv_blocks() const { return reserved_kv_blocks_; }

 private:
  struct Entry {
    std::uint64_t id;
    int prompt_tokens;
    int kv_blocks;
    int computed = 0;  // tokens
    int extra = 0;     // known tokens beyond the one to be computed next
  };

  void admit();

  SchedulerOptions options_;
  std::deque<Entry> waiting_;
  std::vector<Entry> running_;  // oldest first
  int reserved_kv_blocks_ = 0;
};

}  // namespace espalier::generation
