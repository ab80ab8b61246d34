#pragma once

#include <memory>

#include "server/http/router.h"
#include "server/protocol/served_model.h"

namespace espalier::server::openai {

/// Adds `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, `/v1/rerank`, `/v1/models`
/// (also without `/v1`), `/tokenize`, `/detokenize` and `/apply-template`. `slot` must outlive the
/// router.
void add_routes(http::Router& router, const protocol::ModelSlot& slot);

/// The handlers behind them.
http::Handler chat_handler(const protocol::ModelSlot& slot);
http::Handler completion_handler(const protocol::ModelSlot& slot);
http::Handler model_list_handler(const protocol::ModelSlot& slot);
http::Handler model_handler(const protocol::ModelSlot& slot);
http::Handler embedding_handler(const protocol::ModelSlot& slot);
http::Handler rerank_handler(const protocol::ModelSlot& slot);
http::Handler tokenize_handler(const protocol::ModelSlot& slot);
http::Handler detokenize_handler(const protocol::ModelSlot& slot);
http::Handler template_handler(const protocol::ModelSlot& slot);

}  // namespace espalier::server::openai
