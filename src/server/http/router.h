#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"

namespace espalier::server::http {

/// Finds the handler for a method and path. Filled before the server starts, then read only.
class Router {
 public:
  /// `pattern` is a path; one that ends in `/*` takes every longer path with that beginning.
  void add(std::string method, std::string pattern, Handler handler);

  struct Match {
    const Handler* handler = nullptr;  // null: no such path, or not with this method
    std::string_view pattern;          // empty when no path fits
    std::string parameter;             // what `*` stands for
    std::string allow;                 // the methods this path takes, for 405 and OPTIONS
  };

  /// `HEAD` is answered by the handler of `GET`. The views live as long as the router.
  Match find(std::string_view method, std::string_view path) const;

 private:
  struct Route {
    std::string method;
    std::string pattern;
    Handler handler;
  };
  std::vector<Route> routes_;
};

/// The path of a request target: scheme, host and query removed, percent-decoded. Throws
/// `RequestError` 400 for a malformed one.
std::string decode_path(std::string_view target);

}  // namespace espalier::server::http
