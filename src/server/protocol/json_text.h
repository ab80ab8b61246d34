#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "server/protocol/parameter.h"

namespace espalier::server::protocol {

/// Why a text is no JSON that may be used. `what()` goes after "The request's JSON"; `byte` counts
/// from 1 and is 0 where the fault has no place.
class JsonError : public std::runtime_error {
 public:
  JsonError(const std::string& problem, std::size_t byte)
      : std::runtime_error(problem), byte_(byte) {}

  std::size_t byte() const { return byte_; }

 private:
  std::size_t byte_;
};

/// Parses JSON that somebody else wrote: in a time that grows with the text and not with the square
/// of an object's members, without nesting that would exhaust the stack of whoever walks the value,
/// and without a name twice in an object. Throws `JsonError`.
Json parse_json(std::string_view text);

}  // namespace espalier::server::protocol
