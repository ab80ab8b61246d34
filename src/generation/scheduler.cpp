#include "generation/scheduler.h"

#include <algorithm>
#include <stdexcept>

namespace espalier::generation {

Scheduler::Scheduler(const SchedulerOptions& options) : options_(options) {}

void Scheduler::enqueue(std::uint64_t id, int prompt_tokens, int most_tokens) {
  const int kv_blocks = (most_tokens + options_.kv_block_tokens - 1) / options_.kv_block_tokens;
  if (prompt_tokens < 1 || most_tokens < prompt_tokens || kv_blocks > options_.kv_blocks) {
    throw std::logic_error("[Scheduler::enqueue] expected a request that fits the pool");
  }
  waiting_.push_back({.id = id, .prompt_tokens = prompt_tokens, .kv_blocks = kv_blocks});
}

std::vector<ScheduledRows> Scheduler::plan() {
  admit();
  std::vector<ScheduledRows> plan;
  plan.reserve(running_.size());
  int prefill_left = options_.prefill_chunk;
  for (Entry& entry : running_) {
    const int prompt_left = entry.prompt_tokens - entry.computed;
    const bool decodes = prompt_left <= 0;
    const int known = decodes ? 1 + entry.extra : prompt_left;
    const int rows = std::min(known, decodes ? options_.prefill_chunk : prefill_left);
    if (rows == 0) {
      continue;
    }
    if (decodes) {
      entry.extra = std::max(entry.extra - rows, 0);
    } else {
      prefill_left -= rows;
    }
    plan.push_back(
        {.id = entry.id, .position = entry.computed, .rows = rows, .samples = rows == known});
    entry.computed += rows;
  }
  return plan;
}

void Scheduler::extend(std::uint64_t id, int tokens) {
  const auto matches = [id](const Entry& entry) { return entry.id == id; };
  const auto found = std::ranges::find_if(running_, matches);
  if (found == running_.end() || found->computed < found->prompt_tokens) {
    throw std::logic_error("[Scheduler::extend] expected a request whose prompt is computed");
  }
  found->extra += tokens;
}

void Scheduler::remove(std::uint64_t id) {
  const auto matches = [id](const Entry& entry) { return entry.id == id; };
  if (const auto found = std::ranges::find_if(running_, matches); found != running_.end()) {
    reserved_kv_blocks_ -= found->kv_blocks;
    running_.erase(found);
    return;
  }
  std::erase_if(waiting_, matches);
}

void Scheduler::admit() {
  while (!waiting_.empty() && running() < options_.max_running &&
         reserved_kv_blocks_ + waiting_.front().kv_blocks <= options_.kv_blocks) {
    reserved_kv_blocks_ += waiting_.front().kv_blocks;
    running_.push_back(waiting_.front());
    waiting_.pop_front();
  }
}

}  // namespace espalier::generation
