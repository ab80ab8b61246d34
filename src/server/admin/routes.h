#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/http/router.h"
#include "server/http/server.h"
#include "server/protocol/served_model.h"

namespace espalier::server::admin {

/// Counts requests by route and status for `/metrics`. Thread-safe.
class RequestMetrics {
 public:
  RequestMetrics();
  ~RequestMetrics();
  void record(const http::ExchangeRecord& record);
  /// Prometheus' text format: these counters and, once a model is loaded, the engine's.
  std::string serialize(const protocol::ServedModel* model) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Adds `/health` (503 until the model is loaded) and `/metrics`. Both arguments must outlive the
/// router.
void add_routes(http::Router& router, const protocol::ModelSlot& slot,
                const RequestMetrics& metrics);

}  // namespace espalier::server::admin
