#include "server/http/router.h"

#include <optional>
#include <utility>

#include "base/error.h"

namespace espalier::server::http {
namespace {

/// What the pattern's `*` stands for in `path`; nothing when the pattern does not fit.
std::optional<std::string_view> fit(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) {
    return pattern == path ? std::optional(std::string_view()) : std::nullopt;
  }
  const std::string_view stem = pattern.substr(0, pattern.size() - 1);
  if (!path.starts_with(stem) || path.size() == stem.size()) return std::nullopt;
  return path.substr(stem.size());
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void Router::add(std::string method, std::string pattern, Handler handler) {
  routes_.push_back({std::move(method), std::move(pattern), std::move(handler)});
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  Match match;
  for (const Route& route : routes_) {
    const auto parameter = fit(route.pattern, path);
    if (!parameter) continue;
    match.pattern = route.pattern;
    match.allow += (match.allow.empty() ? "" : ", ") + route.method;
    if (route.method == wanted && match.handler == nullptr) {
      match.handler = &route.handler;
      match.parameter = *parameter;
    }
  }
  if (!match.allow.empty()) match.allow += ", OPTIONS";
  return match;
}

std::string decode_path(std::string_view target) {
  if (const auto scheme = target.find("://");
      scheme != std::string_view::npos &&
      target.substr(0, scheme).find('/') == std::string_view::npos) {
    const auto path = target.find('/', scheme + 3);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  target = target.substr(0, target.find_first_of("?#"));
  std::string path;
  path.reserve(target.size());
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (target[i] != '%') {
      path += target[i];
      continue;
    }
    const int high = i + 2 < target.size() ? hex_digit(target[i + 1]) : -1;
    const int low = i + 2 < target.size() ? hex_digit(target[i + 2]) : -1;
    if (high < 0 || low < 0 || high + low == 0) {
      throw base::RequestError(400, "invalid_path", "The request path has a malformed % escape.");
    }
    path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return path;
}

}  // namespace espalier::server::http
