#include <utility>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "server/admin/routes.h"

namespace espalier::server::admin {
namespace {

prometheus::MetricFamily family(const std::string& name, const std::string& help,
                                prometheus::MetricType type, double value) {
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return {name, help, type, {metric}};
}

/// The engine keeps its own counters; they are read when asked for.
void append_engine(std::vector<prometheus::MetricFamily>& families,
                   const generation::Engine& engine) {
  const generation::EngineStats stats = engine.stats();
  const auto counter = [&families](const char* name, const char* help, double value) {
    families.push_back(family(name, help, prometheus::MetricType::Counter, value));
  };
  const auto gauge = [&families](const char* name, const char* help, double value) {
    families.push_back(family(name, help, prometheus::MetricType::Gauge, value));
  };
  const auto real = [](std::uint64_t count) { return static_cast<double>(count); };
  counter("espalier_sequences_total", "Sequences submitted", real(stats.requests_total));
  counter("espalier_sequences_finished_total", "Sequences that came to their end",
          real(stats.requests_finished));
  counter("espalier_sequences_cancelled_total", "Sequences that were cancelled",
          real(stats.requests_cancelled));
  counter("espalier_prompt_tokens_total", "Prompt tokens computed",
          real(stats.prompt_tokens_total));
  counter("espalier_generated_tokens_total", "Tokens generated",
          real(stats.generated_tokens_total));
  counter("espalier_steps_total", "Forward passes", real(stats.steps_total));
  counter("espalier_prefill_seconds_total", "Time in steps with prompt tokens",
          stats.prefill_seconds_total);
  counter("espalier_decode_seconds_total", "Time in steps without prompt tokens",
          stats.decode_seconds_total);
  gauge("espalier_sequences_running", "Sequences in the running batch", stats.running);
  gauge("espalier_sequences_waiting", "Sequences waiting to run", stats.waiting);
  gauge("espalier_kv_blocks_used", "KV blocks in use", stats.kv_blocks_used);
  gauge("espalier_kv_blocks", "KV blocks there are", stats.kv_blocks_total);
  gauge("espalier_weight_bytes", "Bytes of the weights as they are multiplied with",
        real(engine.info().weight_bytes));
  gauge("espalier_repacked_weight_bytes",
        "Those of them in private memory; with --no-repack the others are the file's own pages",
        real(engine.info().packed_bytes));
}

}  // namespace

struct RequestMetrics::Impl {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
      prometheus::BuildCounter()
          .Name("espalier_http_requests_total")
          .Help("Requests answered, by route and status; 499: the client went away")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& seconds =
      prometheus::BuildCounter()
          .Name("espalier_http_request_seconds_total")
          .Help("Time from a request's last byte to the end of its answer, by route")
          .Register(registry);
};

RequestMetrics::RequestMetrics() : impl_(std::make_unique<Impl>()) {}
RequestMetrics::~RequestMetrics() = default;

void RequestMetrics::record(const http::ExchangeRecord& record) {
  const std::string route(record.route.empty() ? "unknown" : record.route);
  impl_->requests.Add({{"route", route}, {"status", std::to_string(record.status)}}).Increment();
  impl_->seconds.Add({{"route", route}}).Increment(record.seconds);
}

std::string RequestMetrics::serialize(const protocol::ServedModel* model) const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  if (model != nullptr) append_engine(families, *model->engine);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace espalier::server::admin
