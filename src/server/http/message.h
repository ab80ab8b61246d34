#pragma once

#include <string>
#include <utility>
#include <vector>

namespace espalier::server::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// One request as handlers see it: complete, within the limits, routed.
struct Request {
  std::string method;
  std::string path;  // percent-decoded, without the query
  std::string body = {};
  std::string origin;     // of a browser's cross-origin request, else empty
  std::string parameter;  // what the `*` of the route stands for
};

/// A whole answer. `Content-Length`, `Server` and CORS headers are added when it is written.
struct Response {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  Headers headers = {};
};

}  // namespace espalier::server::http
