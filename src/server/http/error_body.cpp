#include "server/http/error_body.h"

#include <nlohmann/json.hpp>

namespace espalier::server::http {
namespace {

std::string_view error_type(int status) {
  switch (status) {
    case 401:
    case 403:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

std::string error_body(int status, std::string_view message, std::string_view code,
                       std::string_view param) {
  const auto text_or_null = [](std::string_view text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  const nlohmann::ordered_json body = {{"error",
                                        {{"message", message},
                                         {"type", error_type(status)},
                                         {"param", text_or_null(param)},
                                         {"code", text_or_null(code)}}}};
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Response error_response(const base::RequestError& error) {
  Response response;
  response.status = error.status();
  response.body = error_body(error.status(), error.what(), error.code(), error.param());
  if (error.status() == 429 || error.status() == 503) {
    response.headers.emplace_back("Retry-After", "1");
  }
  return response;
}

}  // namespace espalier::server::http
