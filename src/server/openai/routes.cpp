#include "server/openai/routes.h"

namespace espalier::server::openai {

void add_routes(http::Router& router, const protocol::ModelSlot& slot) {
  for (const std::string prefix : {"/v1", ""}) {
    router.add("POST", prefix + "/chat/completions", chat_handler(slot));
    router.add("POST", prefix + "/completions", completion_handler(slot));
    router.add("POST", prefix + "/embeddings", embedding_handler(slot));
    router.add("POST", prefix + "/rerank", rerank_handler(slot));
    router.add("GET", prefix + "/models", model_list_handler(slot));
    router.add("GET", prefix + "/models/*", model_handler(slot));
  }
  router.add("POST", "/tokenize", tokenize_handler(slot));
  router.add("POST", "/detokenize", detokenize_handler(slot));
  router.add("POST", "/apply-template", template_handler(slot));
}

}  // namespace espalier::server::openai
