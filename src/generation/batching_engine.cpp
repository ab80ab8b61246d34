#include "generation/batching_engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <spdlog/spdlog.h>

#include "base/available_memory.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "generation/constrained_text.h"
#include "generation/kv_budget.h"
#include "generation/load_options.h"
#include "generation/sampler.h"
#include "generation/scheduler.h"
#include "kernels/attention.h"
#include "kernels/primitive.h"
#include "mlx/memory.h"
#include "mlx/mlx.h"
#include "models/batch.h"
#include "state/kv_pool.h"

namespace espalier::generation {
namespace {

namespace mx = mlx::core;
using tokenizer::TokenId;
using Clock = std::chrono::steady_clock;

/// What a step's activations may take before it waits for some to be done with. Without a limit
/// memory is allocated for up to a hundred operations ahead of the one that runs: all layers of a
/// small model.
constexpr std::size_t activation_bytes = std::size_t{4} << 20;

/// How long a step waits for masks, which take some 30 µs, to know of tokens that cost no step.
constexpr std::chrono::microseconds mask_patience{100};

void check_options(const EngineOptions& options) {
  const auto require = [](bool holds, const char* sentence) {
    if (!holds) {
      throw base::UsageError(sentence);
    }
  };
  require(options.max_running >= 1, "The number of running requests must be at least 1.");
  require(options.max_waiting >= 0, "The number of waiting requests must be at least 0.");
  require(options.prefill_chunk >= 1, "The prefill chunk must be at least 1 token.");
  require(options.context.value_or(2) >= 2, "The context must be at least 2 tokens.");
}

/// A request in the engine.
struct Active {
  GenerationRequest request;
  TokenSink sink;
  int most_generated;
  std::shared_ptr<ConstrainedText> constrained = {};  // null: free
  std::vector<TokenId> generated = {};
  std::optional<state::SequenceState> state = {};  // from its first step on

  int prompt_tokens() const { return static_cast<int>(request.prompt.size()); }
  bool generates() const { return !generated.empty(); }
  TokenId token(int position) const {
    return position < prompt_tokens() ? request.prompt[position]
                                      : generated[position - prompt_tokens()];
  }
  void deliver(TokenEvent event) {
    try {
      sink(std::move(event));
    } catch (const std::exception& error) {
      spdlog::error("A token sink failed, its request is cancelled: {}", error.what());
      request.cancellation.cancel();
    }
  }
};

/// The KV memory that an engine needs.
struct KvNeed {
  std::uint64_t bytes_per_token;  // of a request's context
  std::uint64_t fixed;            // for all running requests together
};

/// Layers of limited reach hold a bounded part of each request, which is set aside for all of them;
/// where memory is too short for that, they are counted by the token as the others are.
KvNeed kv_need(const std::vector<state::KvLayerShape>& layers, const EngineOptions& options,
               int context, std::uint64_t available) {
  std::vector<state::KvLayerShape> unlimited;
  std::ranges::copy_if(layers, std::back_inserter(unlimited),
                       [](const auto& layer) { return !layer.reach.limited(); });
  const mx::Dtype dtype = kv_dtype(options.kv_type);
  const std::uint64_t fixed =
      static_cast<std::uint64_t>(options.max_running) *
      state::KvPool::limited_bytes(layers, dtype, context, options.prefill_chunk);
  if (fixed > available / 2) {
    return {.bytes_per_token = state::KvPool::bytes_per_token(layers, dtype), .fixed = 0};
  }
  return {.bytes_per_token = state::KvPool::bytes_per_token(unlimited, dtype), .fixed = fixed};
}

class BatchingEngine final : public Engine {
 public:
  BatchingEngine(const ModelLoader& loader, const EngineOptions& options);
  ~BatchingEngine() override;

  const ModelInfo& info() const override { return info_; }
  void submit(GenerationRequest request, TokenSink sink) override;
  EngineStats stats() const override;
  bool drain(double seconds) override;

 private:
  using Id = std::uint64_t;
  using SampleResult = std::variant<Sample, std::string>;  // or what went wrong
  struct SampledRow {
    Id id;
    Active* active;
    const float* logits;  // [V]
  };

  void check(const GenerationRequest& request) const;

  // The rest runs on the engine's thread.
  void run(const ModelLoader& loader, std::promise<void> ready);
  void prepare(const ModelLoader& loader);
  bool collect();
  void sweep();
  void take_known();
  void step();
  void make_pool();
  mx::array compute(const std::vector<ScheduledRows>& plan);
  models::Batch make_batch(const std::vector<ScheduledRows>& plan);
  std::vector<SampleResult> choose(const std::vector<SampledRow>& rows);
  bool settle(Id id, Active& active, int expected);
  void append(Id id, Active& active, SampleResult& result);
  bool add_token(Id id, Active& active, TokenEvent event);
  void fail_started(const std::string& reason);
  void finish(Id id, TokenEvent event);
  void publish();

  const EngineOptions options_;
  ModelInfo info_{};
  int kv_blocks_ = 0;

  // The engine's thread alone.
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<state::KvPool> pool_;
  std::optional<Scheduler> scheduler_;
  std::vector<Sampler> samplers_;  // one for each compute thread
  std::map<Id, Active> active_;    // after pool_: the states give their KV blocks back first
  Id next_id_ = 0;

  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::vector<Active> incoming_;
  EngineStats stats_{};
  int open_ = 0;         // requests that count against the limits
  int undelivered_ = 0;  // requests whose last event is still to come
  bool draining_ = false;
  bool stopping_ = false;

  MaskWorker mask_worker_;
  std::thread thread_;
};

BatchingEngine::BatchingEngine(const ModelLoader& loader, const EngineOptions& options)
    : options_(options) {
  check_options(options);
  std::promise<void> ready;
  std::future<void> outcome = ready.get_future();
  thread_ = std::thread(
      [this, &loader, ready = std::move(ready)]() mutable { run(loader, std::move(ready)); });
  try {
    outcome.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

BatchingEngine::~BatchingEngine() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void BatchingEngine::check(const GenerationRequest& request) const {
  if (request.prompt.empty()) {
    throw base::RequestError(400, "invalid_value", "The prompt is empty.", "prompt");
  }
  for (const TokenId id : request.prompt) {
    if (id < 0 || id >= info_.vocabulary) {
      throw base::RequestError(400, "invalid_value",
                               "The prompt has the token id " + std::to_string(id) +
                                   ", but the model's ids are below " +
                                   std::to_string(info_.vocabulary) + ".",
                               "prompt");
    }
  }
  if (request.max_tokens && *request.max_tokens < 1) {
    throw base::RequestError(400, "invalid_value", "max_tokens must be at least 1.", "max_tokens");
  }
  check_sampling(request.sampling, info_.vocabulary);
  if (request.prompt.size() >= static_cast<std::size_t>(info_.context)) {
    throw base::RequestError(400, "context_length_exceeded",
                             "The request with its " + std::to_string(request.prompt.size()) +
                                 " tokens exceeds the available context size (" +
                                 std::to_string(info_.context) + " tokens).",
                             "prompt");
  }
}

void BatchingEngine::submit(GenerationRequest request, TokenSink sink) {
  check(request);
  const int room = info_.context - static_cast<int>(request.prompt.size());
  const int most_generated = std::min(request.max_tokens.value_or(room), room);
  std::shared_ptr<ConstrainedText> constrained;
  if (request.constraint) {
    auto matcher = request.constraint->start();
    if (matcher->mask_words() != (info_.vocabulary + 31) / 32) {
      throw std::logic_error("[Engine::submit] expected a constraint for this model's vocabulary");
    }
    // The text ends by being complete, which is seen when a token could still follow.
    matcher->limit(static_cast<std::size_t>(most_generated - 1));
    constrained = std::make_shared<ConstrainedText>(std::move(matcher), request.logprobs < 0,
                                                    request.end_tokens);
    constrained->begin(mask_worker_);
  }
  {
    const std::lock_guard lock(mutex_);
    if (draining_) {
      throw base::RequestError(503, "shutting_down", "The server is shutting down.");
    }
    if (open_ - options_.max_running >= options_.max_waiting) {
      throw base::RequestError(429, "queue_full",
                               "All places are taken (" + std::to_string(open_) +
                                   " requests run or wait); try again later.");
    }
    incoming_.push_back({.request = std::move(request),
                         .sink = std::move(sink),
                         .most_generated = most_generated,
                         .constrained = std::move(constrained)});
    ++stats_.requests_total;
    ++open_;
    ++undelivered_;
  }
  wake_.notify_one();
}

EngineStats BatchingEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting += static_cast<int>(incoming_.size());
  return stats;
}

bool BatchingEngine::drain(double seconds) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return idle_.wait_for(lock, std::chrono::duration<double>(seconds),
                        [this] { return undelivered_ == 0; });
}

void BatchingEngine::run(const ModelLoader& loader, std::promise<void> ready) {
  try {
    prepare(loader);
  } catch (...) {
    model_.reset();
    ready.set_exception(std::current_exception());
    return;
  }
  ready.set_value();
  while (collect()) {
    sweep();
    take_known();
    step();
  }
  while (!active_.empty()) {
    finish(active_.begin()->first, {.finish = FinishReason::cancelled});
  }
  pool_.reset();
  model_.reset();
}

void BatchingEngine::prepare(const ModelLoader& loader) {
  model_ = loader();
  const models::Descriptor& descriptor = model_->descriptor();
  const int wanted = std::min(descriptor.context, options_.context.value_or(descriptor.context));
  if (options_.context.value_or(0) > wanted) {
    spdlog::warn("The context is {} tokens instead of {}: the model has no more.", wanted,
                 *options_.context);
  }
  // The other half is for activations and whatever else the machine does.
  const std::uint64_t available = base::available_memory() / 2;
  const std::uint64_t recurrent_bytes =
      static_cast<std::uint64_t>(options_.max_running) *
      state::RecurrentPool::bytes_per_sequence(model_->recurrent_layers());
  if (recurrent_bytes > available) {
    throw base::LoadError("There is not enough memory left for the states of " +
                          std::to_string(options_.max_running) + " requests.");
  }
  const KvNeed need = kv_need(model_->kv_layers(), options_, wanted, available - recurrent_bytes);
  const KvBudget budget =
      plan_kv_budget(available - recurrent_bytes - need.fixed, need.bytes_per_token,
                     kernels::kv_block_tokens, options_.max_running, wanted);
  if (budget.context < 2) {
    throw base::LoadError("There is not enough memory left for the KV memory of one request.");
  }
  if (budget.context < wanted) {
    spdlog::warn("The context is {} tokens instead of {}: more does not fit into memory.",
                 budget.context, wanted);
  }
  kv_blocks_ = budget.kv_blocks;
  make_pool();
  info_ = {.family = descriptor.family,
           .vocabulary = descriptor.vocabulary,
           .context = budget.context,
           .trained_context = descriptor.context,
           .weight_bytes = model_->weight_bytes(),
           .packed_bytes = model_->packed_bytes(),
           .kv_bytes_per_token =
               state::KvPool::bytes_per_token(model_->kv_layers(), kv_dtype(options_.kv_type)),
           .end_tokens = {descriptor.end_tokens.begin(), descriptor.end_tokens.end()}};
  scheduler_.emplace(SchedulerOptions{.max_running = options_.max_running,
                                      .prefill_chunk = options_.prefill_chunk,
                                      .kv_blocks = kv_blocks_,
                                      .kv_block_tokens = kernels::kv_block_tokens});
  samplers_.assign(base::compute_pool().size(), Sampler(descriptor.vocabulary));
  mx::set_memory_limit(mx::get_active_memory() + activation_bytes);
  publish();
}

/// Takes new requests in, waiting while there is nothing to do; false when the engine is to stop.
bool BatchingEngine::collect() {
  std::vector<Active> taken;
  bool stopping = false;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stopping_ || !incoming_.empty() || !active_.empty(); });
    stopping = stopping_;
    taken.swap(incoming_);
    stats_.waiting += static_cast<int>(taken.size());
  }
  for (Active& active : taken) {
    // The last generated token is never computed on, so it needs no KV memory.
    scheduler_->enqueue(next_id_, active.prompt_tokens(),
                        active.prompt_tokens() + active.most_generated - 1);
    active_.emplace(next_id_++, std::move(active));
  }
  return !stopping;
}

void BatchingEngine::sweep() {
  for (auto next = active_.begin(); next != active_.end();) {
    const auto current = next++;
    if (current->second.request.cancellation.cancelled()) {
      finish(current->first, {.finish = FinishReason::cancelled});
    }
  }
}

/// Takes in the tokens that have to follow in constrained texts, as far as they are known already:
/// they cost no step. Later ones give the same text.
void BatchingEngine::take_known() {
  for (auto next = active_.begin(); next != active_.end();) {
    const auto current = next++;
    Active& active = current->second;
    if (active.constrained && active.generates() && active.constrained->wait(mask_patience)) {
      settle(current->first, active, 0);
    }
  }
}

void BatchingEngine::step() {
  const std::vector<ScheduledRows> plan = scheduler_->plan();
  if (plan.empty()) {
    return;
  }
  publish();
  const Clock::time_point start = Clock::now();
  std::optional<mx::array> logits;
  try {
    logits = compute(plan);
  } catch (const std::exception& error) {
    spdlog::error("A step failed: {}", error.what());
    fail_started(std::string("The computation failed: ") + error.what());
    return;
  }

  int prompt_rows = 0;
  const float* next_logits = logits->data<float>();
  std::vector<SampledRow> sampled;
  for (const ScheduledRows& rows : plan) {
    Active& active = active_.at(rows.id);
    prompt_rows += rows.position < active.prompt_tokens() ? rows.rows : 0;
    if (!rows.samples) {
      continue;
    }
    const float* const row = next_logits;
    next_logits += info_.vocabulary;
    if (active.constrained) {
      active.constrained->wait();
    }
    if (!active.constrained || settle(rows.id, active, 1)) {
      sampled.push_back({.id = rows.id, .active = &active, .logits = row});
    }
  }
  std::vector<SampleResult> results = choose(sampled);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  {
    const std::lock_guard lock(mutex_);
    ++stats_.steps_total;
    stats_.prompt_tokens_total += prompt_rows;
    (prompt_rows > 0 ? stats_.prefill_seconds_total : stats_.decode_seconds_total) += seconds;
  }
  publish();
  for (std::size_t i = 0; i < results.size(); ++i) {
    append(sampled[i].id, *sampled[i].active, results[i]);
  }
}

void BatchingEngine::make_pool() {
  pool_ = std::make_unique<state::KvPool>(
      model_->kv_layers(), kv_blocks_, kv_dtype(options_.kv_type),
      state::RecurrentOptions{.layers = model_->recurrent_layers(), .slots = options_.max_running});
}

/// Evaluated f32 logits [rows that sample, V].
mx::array BatchingEngine::compute(const std::vector<ScheduledRows>& plan) {
  if (!pool_) {
    make_pool();
  }
  const models::Batch batch = make_batch(plan);
  mx::array logits = model_->forward(batch, *pool_);
  mx::eval(logits);
  return kernels::row_contiguous(logits);
}

models::Batch BatchingEngine::make_batch(const std::vector<ScheduledRows>& plan) {
  models::Batch batch;
  for (const ScheduledRows& rows : plan) {
    Active& active = active_.at(rows.id);
    if (!active.state) {
      active.state.emplace(*pool_);
    }
    const int first_row = static_cast<int>(batch.tokens.size());
    for (int row = 0; row < rows.rows; ++row) {
      batch.tokens.push_back(active.token(rows.position + row));
    }
    batch.sequences.push_back({.first_row = first_row, .rows = rows.rows, .state = &*active.state});
    if (rows.samples) {
      batch.logits_rows.push_back(first_row + rows.rows - 1);
    }
  }
  return batch;
}

std::vector<BatchingEngine::SampleResult> BatchingEngine::choose(
    const std::vector<SampledRow>& rows) {
  std::vector<SampleResult> results(rows.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&](int worker) {
    for (std::size_t i = next++; i < rows.size(); i = next++) {
      const Active& active = *rows[i].active;
      const std::span logits(rows[i].logits, static_cast<std::size_t>(info_.vocabulary));
      try {
        results[i] = samplers_[worker].sample(
            logits, active.request.sampling, active.request.prompt, active.generated,
            active.request.logprobs,
            active.constrained ? active.constrained->mask() : std::span<const std::uint32_t>());
      } catch (const std::exception& error) {
        results[i] = std::string("No token could be chosen: ") + error.what();
      }
    }
  };
  if (rows.size() == 1) {
    work(0);
  } else if (!rows.empty()) {
    base::compute_pool().run(work);
  }
  return results;
}

/// Takes in what a constrained text's computation found: the tokens that have to follow, `expected`
/// of which the step gives anyway, and its end. False when there is nothing to sample.
bool BatchingEngine::settle(Id id, Active& active, int expected) {
  ConstrainedText& text = *active.constrained;
  const std::vector<TokenId> forced = text.take_forced();
  for (const TokenId token : forced) {
    if (!add_token(id, active, {.token = token})) {
      return false;
    }
  }
  if (!text.error().empty()) {
    spdlog::error("A constrained text cannot go on: {}", text.error());
    finish(id, {.finish = FinishReason::error, .error = text.error()});
    return false;
  }
  if (text.complete()) {
    finish(id, {.finish = FinishReason::stop});
    return false;
  }
  if (const int extra = static_cast<int>(forced.size()) - expected; extra > 0) {
    scheduler_->extend(id, extra);
  }
  return forced.empty();
}

void BatchingEngine::append(Id id, Active& active, SampleResult& result) {
  if (const auto* reason = std::get_if<std::string>(&result)) {
    spdlog::error("{}", *reason);
    finish(id, {.finish = FinishReason::error, .error = *reason});
    return;
  }
  Sample& sample = std::get<Sample>(result);
  const TokenId token = sample.token;
  const bool goes_on = add_token(
      id, active, {.token = token, .logprob = sample.logprob, .top = std::move(sample.top)});
  if (goes_on && active.constrained) {
    active.constrained->advance(mask_worker_, token);
  }
}

/// Adds a token to a request's text and delivers it; false when that ends the request.
bool BatchingEngine::add_token(Id id, Active& active, TokenEvent event) {
  {
    const std::lock_guard lock(mutex_);
    ++stats_.generated_tokens_total;
  }
  active.generated.push_back(*event.token);
  const auto& end_tokens = active.request.end_tokens;
  if (!active.request.ignore_end &&
      std::ranges::find(end_tokens, *event.token) != end_tokens.end()) {
    event.finish = FinishReason::stop;
  } else if (static_cast<int>(active.generated.size()) >= active.most_generated) {
    event.finish = FinishReason::length;
  }
  if (event.finish != FinishReason::none) {
    finish(id, std::move(event));
    return false;
  }
  active.deliver(std::move(event));
  return true;
}

/// After a failed step the KV memory is in doubt: whoever has some ends, and it is made anew.
void BatchingEngine::fail_started(const std::string& reason) {
  std::vector<Id> started;
  for (const auto& [id, active] : active_) {
    if (active.state) {
      started.push_back(id);
    }
  }
  for (const Id id : started) {
    finish(id, {.finish = FinishReason::error, .error = reason});
  }
  pool_.reset();
}

/// Ends a request: frees what it holds, then delivers its last event.
void BatchingEngine::finish(Id id, TokenEvent event) {
  scheduler_->remove(id);
  auto node = active_.extract(id);
  Active& active = node.mapped();
  active.state.reset();
  publish();
  {
    const std::lock_guard lock(mutex_);
    --open_;
    ++(event.finish == FinishReason::cancelled ? stats_.requests_cancelled
                                               : stats_.requests_finished);
  }
  active.deliver(std::move(event));
  const std::lock_guard lock(mutex_);
  if (--undelivered_ == 0) {
    idle_.notify_all();
  }
}

/// Brings the gauges up to date.
void BatchingEngine::publish() {
  const std::lock_guard lock(mutex_);
  stats_.running = scheduler_->running();
  stats_.waiting = scheduler_->waiting();
  stats_.kv_blocks_total = kv_blocks_;
  stats_.kv_blocks_used = pool_ ? pool_->blocks() - pool_->free_blocks() : 0;
}

}  // namespace

std::unique_ptr<Engine> start_engine(const ModelLoader& loader, const EngineOptions& options) {
  return std::make_unique<BatchingEngine>(loader, options);
}

}  // namespace espalier::generation
