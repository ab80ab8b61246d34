#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/protocol/chat_prompt.h"
#include "server/protocol/generation_options.h"
#include "server/protocol/parameter.h"

namespace espalier::server::openai {

using protocol::Json;

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
};

struct ChatRequest {
  protocol::GenerationOptions generation;
  StreamOptions streaming;
  protocol::ChatInput chat;
  std::optional<int> reasoning_budget;  // tokens
};

/// A prompt of `/v1/completions`: text or token ids.
using Prompt = std::variant<std::string, std::vector<tokenizer::TokenId>>;

struct CompletionRequest {
  protocol::GenerationOptions generation;
  StreamOptions streaming;
  std::vector<Prompt> prompts;
  bool echo = false;
};

/// A request to `/apply-template`.
struct TemplateRequest {
  std::string model;
  protocol::ChatInput chat;
};

/// Read a request's body; `defaults` are the model's. Throw `RequestError` 400 naming the parameter
/// that is missing, unknown, unsupported or wrong.
ChatRequest parse_chat(const Json& body, const generation::SamplingParameters& defaults);
CompletionRequest parse_completion(const Json& body,
                                   const generation::SamplingParameters& defaults);
TemplateRequest parse_template_request(const Json& body);

/// Every parameter of the OpenAI dialect with what becomes of it.
std::vector<protocol::ParameterRow> list_parameters();

}  // namespace espalier::server::openai
