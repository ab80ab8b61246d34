#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http/message.h"

namespace espalier::server::http {

/// The JSON text `{"error":{message,type,param,code}}` that OpenAI clients read; `code` and `param`
/// are null when empty.
std::string error_body(int status, std::string_view message, std::string_view code,
                       std::string_view param);

/// The whole answer to a client's fault; 429 and 503 say when to try again.
Response error_response(const base::RequestError& error);

}  // namespace espalier::server::http
