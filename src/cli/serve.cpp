#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include "cli/model_options.h"
#include "cli/option_checks.h"
#include "cli/parameter_table.h"
#include "cli/verbs.h"
#include "server/admin/routes.h"
#include "server/http/server.h"
#include "server/openai/routes.h"

namespace espalier::cli {
namespace {

namespace http = server::http;

constexpr double most_grace_seconds = 1e6;

struct ServeOptions {
  ModelOptions model;
  http::ServerOptions http;
  double grace_seconds = 30;
  int body_limit_mb = 32;
  bool list_parameters = false;
  bool verbose = false;
};

/// A thousand open streams need more file descriptors than the usual soft limit.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// Counts SIGINT and SIGTERM: the first ends the service in good order, the second at once. Before
/// there is a service to end, the first ends the process.
class StopSignals {
 public:
  explicit StopSignals(http::Server& server) : server_(server) {
    server_.on_signal([this] { receive(); });
  }

  /// From now on the first signal only makes `wait` return.
  void wait() {
    serving_ = true;
    received_.wait(0);
  }

 private:
  void receive() {
    if (!serving_) std::_Exit(0);
    ++received_;
    received_.notify_all();
    if (received_ > 1) server_.interrupt_wait();
  }

  http::Server& server_;
  std::atomic<bool> serving_ = false;
  std::atomic<int> received_ = 0;
};

void log_request(const http::ExchangeRecord& record) {
  spdlog::debug("{} {} {} {:.3f} s", record.method, record.route, record.status, record.seconds);
}

std::string url(const http::Server& server) {
  const bool ipv6 = server.host().find(':') != std::string::npos;
  return "http://" + (ipv6 ? "[" + server.host() + "]" : server.host()) + ":" +
         std::to_string(server.port());
}

void run_serve(ServeOptions options) {
  if (options.list_parameters) {
    print_parameter_table(std::cout);
    return;
  }
  if (options.verbose) spdlog::set_level(spdlog::level::debug);
  options.http.body_limit = static_cast<std::size_t>(options.body_limit_mb) * 1024 * 1024;
  raise_descriptor_limit();
  const hub::LocalModel model =
      options.model.model.empty() ? hub::default_model() : hub::resolve(options.model.model);
  server::protocol::ModelSlot slot;
  server::admin::RequestMetrics metrics;
  http::Router router;
  server::openai::add_routes(router, slot);
  server::admin::add_routes(router, slot, metrics);
  // It listens before the model is there, so that /health can say that it loads.
  http::Server server(options.http, std::move(router), [&metrics](const auto& record) {
    metrics.record(record);
    log_request(record);
  });
  StopSignals signals(server);
  server.start();
  const auto served = load_served_model(model, options.model);
  slot.set(served);
  std::cout << "listening on " << url(server) << std::endl;
  signals.wait();
  server.stop_accepting();
  const bool finished = server.wait_idle(options.grace_seconds);
  server.stop();
  if (!finished) spdlog::warn("stopped before every request was finished");
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* verb = app.add_subcommand(
      "serve",
      "Serve a model over HTTP as OpenAI's API does: /v1/chat/completions, /v1/completions,\n"
      "/v1/models; /v1/embeddings and /v1/rerank with models of that kind; also /tokenize,\n"
      "/detokenize, /apply-template, /health and /metrics.\n"
      "SIGTERM finishes running requests; a second one stops at once.");
  add_model_options(*verb, options->model, false);
  add_engine_options(*verb, options->model);
  verb->add_option("--max-running", options->model.engine.max_running,
                   "requests that are computed at the same time")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_option("--max-waiting", options->model.engine.max_waiting,
                   "requests that may wait; further ones get 429")
      ->check(whole_number(0))
      ->capture_default_str();
  verb->add_option("--tool-dialect", options->model.tool_dialect,
                   "how the model writes tool calls (default: as its template shows; names: "
                   "espalier parse-tools --list)");
  verb->add_option("--host", options->http.host, "address to listen on")->capture_default_str();
  verb->add_option("--port", options->http.port, "port to listen on; 0 picks a free one")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  verb->add_option("--body-limit", options->body_limit_mb, "largest request body in MB")
      ->check(whole_number(1, 4096))
      ->capture_default_str();
  verb->add_option("--grace", options->grace_seconds,
                   "seconds that running requests get to finish after SIGTERM")
      ->check(real_number(0, most_grace_seconds))
      ->capture_default_str();
  verb->add_flag("--list-parameters", options->list_parameters,
                 "print every request parameter and what becomes of it, then end");
  verb->add_flag("--verbose", options->verbose, "log every request");
  verb->footer(
      "Examples:\n"
      "  espalier serve --model MODEL --port 8080\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", "
      "\"content\": \"Hi\"}]}'");
  verb->callback([options, &action] { action = [options] { run_serve(*options); }; });
}

}  // namespace espalier::cli
