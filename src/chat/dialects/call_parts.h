#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/dialect.h"

namespace espalier::chat {

/// Takes what may be a function's name or an id: no white space, quotes or brackets.
Task<std::string> take_name(TextCursor& in);

/// Takes a call's arguments, JSON or a string that holds JSON, and writes them as they come. False
/// when they are broken; `stops` are the texts that end a broken string.
Task<bool> write_arguments(ParseContext& context, const std::vector<std::string>& stops);

/// Takes text up to one of `ends` and writes it as the call's arguments.
Task<void> write_raw_arguments(ParseContext& context, const std::vector<std::string>& ends);

/// The beginning of an object's member in JSON, up to its value.
std::string member_start(std::string_view name, bool first);

/// Takes "```" or "```json" (any language) and the white space after it, if they are there.
Task<bool> take_fence(TextCursor& in);

}  // namespace espalier::chat
