#pragma once

#include <memory>

#include "chat/dialect.h"

namespace espalier::chat {

/// Gemma 4: call:NAME{key:value,…} with bare keys and strings between <|"|> marks.
std::shared_ptr<const CallSyntax> gemma4_calls();

}  // namespace espalier::chat
