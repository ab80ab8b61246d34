#pragma once

#include <memory>

#include "chat/dialect.h"

namespace espalier::chat {

/// gpt-oss: each part of an answer has a channel and perhaps a recipient in its header.
std::shared_ptr<const MessageSyntax> harmony_messages();
/// Functionary 3.2: each part starts with its recipient on a line; `all` is the user.
std::shared_ptr<const MessageSyntax> functionary_messages();

}  // namespace espalier::chat
