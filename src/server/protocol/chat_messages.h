#pragma once

#include "server/protocol/parameter.h"

namespace espalier::server::protocol {

/// A conversation in the one form that templates are given: known roles (`developer` is `system`),
/// text contents as strings, reasoning under `reasoning_content`, arguments of tool calls as
/// objects. Throws `RequestError` 400 naming the message's part that is no such thing.
Json read_messages(const Parameter& messages);

}  // namespace espalier::server::protocol
