#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace espalier::chat {

/// What a template is given, as transformers' `apply_chat_template` takes it. JSON is kept as text
/// with its key order.
struct RenderRequest {
  std::string messages_json;                          // an array of messages
  std::string tools_json;                             // an array, or empty
  std::string documents_json;                         // an array, or empty
  std::string kwargs_json;                            // an object of further variables, or empty
  std::map<std::string, std::string> special_tokens;  // bos_token, eos_token, …
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::string template_name;  // empty: default (tool_use is taken when there are tools)
  std::chrono::system_clock::time_point now;
};

/// A compiled chat template (minijinja with transformers' environment). Immutable, thread-safe.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  /// The prompt text. Throws `RequestError` 400 with the template's own message when it refuses.
  virtual std::string render(const RenderRequest& request) const = 0;
};

/// Compiles named variants; "default" is the plain one. Throws `LoadError` naming `source`.
std::shared_ptr<const ChatTemplate> compile_template(
    const std::map<std::string, std::string>& variants, const std::string& source);

}  // namespace espalier::chat
