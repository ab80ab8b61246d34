#include "chat/template.h"

#include <ctime>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/text_library.h"

namespace espalier::chat {
namespace {

using tokenizer::as_bytes;

struct FreeTemplate {
  void operator()(espalier_text_template* compiled) const { espalier_text_template_free(compiled); }
};
using TemplateHandle = std::unique_ptr<espalier_text_template, FreeTemplate>;

/// Seconds since 1970 on the wall clock of this machine's time zone.
std::int64_t local_seconds(std::chrono::system_clock::time_point now) {
  const std::time_t utc = std::chrono::system_clock::to_time_t(now);
  std::tm local{};
  ::localtime_r(&utc, &local);
  return static_cast<std::int64_t>(utc) + local.tm_gmtoff;
}

bool has_tools(const RenderRequest& request) {
  return !request.tools_json.empty() && request.tools_json != "null";
}

class CompiledTemplates : public ChatTemplate {
 public:
  explicit CompiledTemplates(std::map<std::string, TemplateHandle> variants)
      : variants_(std::move(variants)) {}

  std::string render(const RenderRequest& request) const override {
    const std::string special_tokens = nlohmann::json(request.special_tokens).dump();
    const espalier_text_render_input input{
        .messages = as_bytes(request.messages_json),
        .tools = as_bytes(request.tools_json),
        .documents = as_bytes(request.documents_json),
        .kwargs = as_bytes(request.kwargs_json),
        .special_tokens = as_bytes(special_tokens),
        .add_generation_prompt = int{request.add_generation_prompt},
        .continue_final_message = int{request.continue_final_message},
        .local_seconds = local_seconds(request.now),
    };
    espalier_text_buffer text{};
    switch (espalier_text_template_render(choose(request), &input, &text)) {
      case ESPALIER_TEXT_OK:
        return tokenizer::take(text);
      case ESPALIER_TEXT_REFUSED:
        throw base::RequestError(400, "invalid_messages", tokenizer::last_text_error(), "messages");
      case ESPALIER_TEXT_FAILED:
      case ESPALIER_TEXT_CANCELLED:
        break;
    }
    throw base::RequestError(
        400, "template_failed",
        "The chat template cannot render these messages: " + tokenizer::last_text_error() + ".",
        "messages");
  }

 private:
  /// As transformers chooses: the named one; else `tool_use` when tools are given; else `default`.
  const espalier_text_template* choose(const RenderRequest& request) const {
    auto found = variants_.end();
    if (!request.template_name.empty()) {
      found = variants_.find(request.template_name);
      if (found == variants_.end()) {
        throw base::RequestError(
            400, "unknown_template",
            "The model has no chat template named \"" + request.template_name + "\".",
            "chat_template");
      }
      return found->second.get();
    }
    if (has_tools(request)) found = variants_.find("tool_use");
    if (found == variants_.end()) found = variants_.find("default");
    if (found == variants_.end()) {
      throw base::RequestError(400, "unknown_template",
                               "The model has no default chat template; name one of its own.",
                               "chat_template");
    }
    return found->second.get();
  }

  std::map<std::string, TemplateHandle> variants_;
};

}  // namespace

std::shared_ptr<const ChatTemplate> compile_template(
    const std::map<std::string, std::string>& variants, const std::string& source) {
  std::map<std::string, TemplateHandle> compiled;
  for (const auto& [name, text] : variants) {
    TemplateHandle handle(espalier_text_template_compile(as_bytes(text)));
    if (!handle) {
      throw base::LoadError("The chat template \"" + name + "\" of " + source +
                            " is malformed: " + tokenizer::last_text_error() + ".");
    }
    compiled.emplace(name, std::move(handle));
  }
  return std::make_shared<CompiledTemplates>(std::move(compiled));
}

}  // namespace espalier::chat
