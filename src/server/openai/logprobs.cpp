#include "server/openai/logprobs.h"

#include <algorithm>

namespace espalier::server::openai {
namespace {

using generation::TokenEvent;
using generation::TokenLogprob;
using protocol::Json;

// What OpenAI sends for "impossible": JSON has no infinity.
constexpr float least_logprob = -9999.0F;

bool is_text(const TokenEvent& event) {
  return event.token.has_value() && event.finish != generation::FinishReason::stop;
}

/// A token's bytes as JSON text: what is not UTF-8 becomes U+FFFD.
std::string token_text(tokenizer::TokenId id, const tokenizer::Tokenizer& tokenizer) {
  return Json::parse(protocol::dump(Json(tokenizer.token_bytes(id)))).get<std::string>();
}

Json token_entry(tokenizer::TokenId id, float logprob, const tokenizer::Tokenizer& tokenizer) {
  Json bytes = Json::array();
  for (const char byte : tokenizer.token_bytes(id)) {
    bytes.push_back(static_cast<unsigned char>(byte));
  }
  return {{"token", token_text(id, tokenizer)},
          {"logprob", std::max(logprob, least_logprob)},
          {"bytes", std::move(bytes)}};
}

}  // namespace

Json chat_logprobs(const std::vector<TokenEvent>& tokens, const tokenizer::Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const TokenEvent& event : tokens) {
    if (!is_text(event)) continue;
    Json entry = token_entry(*event.token, event.logprob, tokenizer);
    entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& top : event.top) {
      entry["top_logprobs"].push_back(token_entry(top.id, top.logprob, tokenizer));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const std::vector<TokenEvent>& tokens,
                         const tokenizer::Tokenizer& tokenizer, std::size_t& offset) {
  Json result = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
  for (const TokenEvent& event : tokens) {
    if (!is_text(event)) continue;
    const std::string text = token_text(*event.token, tokenizer);
    result["tokens"].push_back(text);
    result["token_logprobs"].push_back(std::max(event.logprob, least_logprob));
    Json top = Json::object();
    for (const TokenLogprob& candidate : event.top) {
      top[token_text(candidate.id, tokenizer)] = std::max(candidate.logprob, least_logprob);
    }
    result["top_logprobs"].push_back(std::move(top));
    result["text_offset"].push_back(offset);
    offset += count_characters(text);
  }
  return result;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

}  // namespace espalier::server::openai
