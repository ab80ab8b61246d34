#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/admin/routes.h"

namespace espalier::server::admin {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(RequestMetrics, CountsByRouteAndStatus) {
  RequestMetrics metrics;
  metrics.record({.method = "GET", .route = "/health", .status = 200, .seconds = 0.5});
  metrics.record({.method = "GET", .route = "/health", .status = 200, .seconds = 0.25});
  metrics.record({.method = "GET", .route = "", .status = 404, .seconds = 0});
  const std::string text = metrics.serialize(nullptr);
  EXPECT_THAT(text, HasSubstr("# TYPE espalier_http_requests_total counter\n"));
  EXPECT_THAT(text, HasSubstr(R"(espalier_http_requests_total{route="/health",status="200"} 2)"));
  EXPECT_THAT(text, HasSubstr(R"(espalier_http_requests_total{route="unknown",status="404"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(espalier_http_request_seconds_total{route="/health"} 0.75)"));
  EXPECT_THAT(text, Not(HasSubstr("espalier_sequences")));
}

class FakeEngine : public generation::Engine {
 public:
  const generation::ModelInfo& info() const override { return info_; }
  void submit(generation::GenerationRequest, generation::TokenSink) override {}
  generation::EngineStats stats() const override {
    generation::EngineStats stats{};
    stats.generated_tokens_total = 7;
    stats.running = 3;
    return stats;
  }
  bool drain(double) override { return true; }

 private:
  generation::ModelInfo info_ = [] {
    generation::ModelInfo info{};
    info.weight_bytes = 9;
    info.packed_bytes = 5;
    return info;
  }();
};

TEST(RequestMetrics, AddsTheEnginesCounters) {
  protocol::ServedModel model;
  model.engine = std::make_shared<FakeEngine>();
  const std::string text = RequestMetrics().serialize(&model);
  EXPECT_THAT(text, HasSubstr("# TYPE espalier_sequences_running gauge\n"));
  EXPECT_THAT(text, HasSubstr("\nespalier_sequences_running 3\n"));
  EXPECT_THAT(text, HasSubstr("\nespalier_generated_tokens_total 7\n"));
  EXPECT_THAT(text, HasSubstr("\nespalier_weight_bytes 9\n"));
  EXPECT_THAT(text, HasSubstr("\nespalier_repacked_weight_bytes 5\n"));
}

}  // namespace
}  // namespace espalier::server::admin
