#include "server/openai/parameters.h"

#include <limits>
#include <optional>

#include "server/openai/embedding_parameters.h"
#include "server/openai/text_parameters.h"
#include "server/protocol/chat_messages.h"

namespace espalier::server::openai {
namespace {

using protocol::accepted;
using protocol::mapped;
using protocol::Parameter;
using protocol::ParameterRules;
using protocol::refused;
using protocol::top_logprobs_limit;

constexpr std::size_t template_variables_limit = 1000;

/// A chat request while its members are read: some make sense only together.
struct ChatDraft {
  ChatRequest request;
  bool has_stream_options = false;
  bool logprobs = false;
  std::optional<int> top_logprobs;
};

struct CompletionDraft {
  CompletionRequest request;
  bool has_stream_options = false;
  std::optional<int> best_of;
};

void read_stream_options(const Parameter& parameter, StreamOptions& streaming) {
  for (const auto& [key, value] : parameter.members()) {
    if (key == "include_usage") {
      streaming.include_usage = value.boolean();
    } else if (key == "include_obfuscation") {
      if (value.boolean()) value.refuse("is not supported", "unsupported_parameter");
    } else {
      value.refuse("is not a stream option", "unknown_parameter");
    }
  }
}

void check_stream_options(bool has_stream_options, const StreamOptions& streaming) {
  if (has_stream_options && !streaming.stream) {
    throw base::RequestError(400, "invalid_value",
                             "'stream_options' goes only with 'stream': true.", "stream_options");
  }
}

/// `stream` and `stream_options`; `request` holds a `StreamOptions` named `streaming`.
template <typename Draft>
void add_stream_rules(ParameterRules<Draft>& rules) {
  rules.push_back(mapped<Draft>("stream", "server-sent events as the text is generated",
                                [](const Parameter& parameter, Draft& draft) {
                                  draft.request.streaming.stream = parameter.boolean();
                                }));
  rules.push_back(mapped<Draft>("stream_options", "include_usage: a last event with the usage",
                                [](const Parameter& parameter, Draft& draft) {
                                  draft.has_stream_options = true;
                                  read_stream_options(parameter, draft.request.streaming);
                                }));
}

template <typename Draft>
void add_common_rules(ParameterRules<Draft>& rules) {
  for (const auto& rule : protocol::common_rules()) {
    rules.push_back({rule.name, rule.handling, rule.note,
                     [apply = rule.apply](const Parameter& parameter, Draft& draft) {
                       apply(parameter, draft.request.generation);
                     }});
  }
  rules.push_back(refused<Draft>("service_tier", "there is one tier", {"auto", "default"}));
  add_stream_rules(rules);
}

/// What puts variables into the template, for every `Target` with a `ChatInput` that `chat` finds.
template <typename Target>
void add_template_rules(ParameterRules<Target>& rules,
                        protocol::ChatInput& (*chat)(Target& target)) {
  rules.push_back(mapped<Target>("chat_template_kwargs", "further variables for the chat template",
                                 [chat](const Parameter& parameter, Target& target) {
                                   const auto variables = parameter.members();
                                   if (variables.size() > template_variables_limit) {
                                     parameter.refuse("must not have more than " +
                                                      std::to_string(template_variables_limit) +
                                                      " members");
                                   }
                                   for (const auto& [key, value] : variables) {
                                     chat(target).template_variables[key] = value.json();
                                   }
                                 }));
  rules.push_back(mapped<Target>("chat_template",
                                 "the name of one of the model's templates, or a template's source",
                                 [chat](const Parameter& parameter, Target& target) {
                                   chat(target).chat_template = parameter.string();
                                 }));
  rules.push_back(mapped<Target>("reasoning_effort", "a variable for the chat template",
                                 [chat](const Parameter& parameter, Target& target) {
                                   chat(target).template_variables["reasoning_effort"] =
                                       parameter.string();
                                 }));
  rules.push_back(mapped<Target>("enable_thinking", "a variable for the chat template",
                                 [chat](const Parameter& parameter, Target& target) {
                                   // Some templates know it by the shorter name.
                                   for (const char* name : {"enable_thinking", "thinking"}) {
                                     chat(target).template_variables[name] = parameter.boolean();
                                   }
                                 }));
  rules.push_back(mapped<Target>("add_generation_prompt", "open the assistant's turn; default true",
                                 [chat](const Parameter& parameter, Target& target) {
                                   chat(target).add_generation_prompt = parameter.boolean();
                                 }));
  rules.push_back(mapped<Target>("continue_final_message",
                                 "go on with the last message in place of a new turn",
                                 [chat](const Parameter& parameter, Target& target) {
                                   chat(target).continue_final_message = parameter.boolean();
                                   if (chat(target).continue_final_message)
                                     chat(target).add_generation_prompt = false;
                                 }));
}

/// The functions that are offered, for every `Target` with a `ChatInput` that `chat` finds.
template <typename Target>
void add_tool_rules(ParameterRules<Target>& rules, protocol::ChatInput& (*chat)(Target& target)) {
  const auto add = [&rules, chat](const char* name, const char* note,
                                  void (*read)(const Parameter&, protocol::ToolOptions&)) {
    rules.push_back(
        mapped<Target>(name, note, [chat, read](const Parameter& parameter, Target& target) {
          read(parameter, chat(target).tools);
        }));
  };
  add("tools", "functions that the model may call", protocol::read_tools);
  add("tool_choice", "none, auto, required or the function to call", protocol::read_tool_choice);
  add("functions", "the older form of tools", protocol::read_functions);
  add("function_call", "the older form of tool_choice", protocol::read_function_call);
}

void read_reasoning_budget(const Parameter& parameter, ChatDraft& draft) {
  const auto tokens = static_cast<int>(parameter.integer(-1, std::numeric_limits<int>::max()));
  std::optional<int>& budget = draft.request.reasoning_budget;
  if (tokens < 0) return;
  if (budget && *budget != tokens) {
    parameter.refuse("is another limit than the one given under another name");
  }
  budget = tokens;
  draft.request.chat.template_variables["thinking_budget"] = tokens;
}

void add_chat_refusals(ParameterRules<ChatDraft>& rules) {
  const auto refuse = [&rules](const char* name, const char* note, std::vector<Json> neutral) {
    rules.push_back(refused<ChatDraft>(name, note, std::move(neutral)));
  };
  refuse("store", "answers are not stored", {false});
  refuse("audio", "there is no audio output", {});
  refuse("modalities", "answers are text", {Json::array({"text"}), Json::array()});
  refuse("prediction", "predicted outputs are not there", {});
  refuse("verbosity", "the model has no such control", {"medium"});
  refuse("web_search_options", "there is no web search", {});
  refuse("moderation", "there is no moderation", {});
  refuse("thinking", "use 'chat_template_kwargs'", {});
  refuse("reasoning_format", "reasoning comes as reasoning_content", {"auto", "deepseek"});
}

ParameterRules<ChatDraft> chat_rules() {
  ParameterRules<ChatDraft> rules;
  rules.push_back(mapped<ChatDraft>("messages", "the conversation, contents as text",
                                    [](const Parameter& parameter, ChatDraft& draft) {
                                      draft.request.chat.messages =
                                          protocol::read_messages(parameter);
                                    }));
  add_common_rules(rules);
  rules.push_back(mapped<ChatDraft>("max_completion_tokens", "the same as max_tokens",
                                    [](const Parameter& parameter, ChatDraft& draft) {
                                      set_max_tokens(parameter, draft.request.generation);
                                    }));
  rules.push_back(mapped<ChatDraft>(
      "logprobs", "log-probabilities of the generated tokens",
      [](const Parameter& parameter, ChatDraft& draft) { draft.logprobs = parameter.boolean(); }));
  rules.push_back(mapped<ChatDraft>("top_logprobs", "the most likely tokens at each place, 0 to 20",
                                    [](const Parameter& parameter, ChatDraft& draft) {
                                      draft.top_logprobs = static_cast<int>(
                                          parameter.integer(0, top_logprobs_limit));
                                    }));
  add_template_rules<ChatDraft>(
      rules, [](ChatDraft& draft) -> protocol::ChatInput& { return draft.request.chat; });
  add_tool_rules<ChatDraft>(
      rules, [](ChatDraft& draft) -> protocol::ChatInput& { return draft.request.chat; });
  rules.push_back(mapped<ChatDraft>("parallel_tool_calls", "several calls in one answer",
                                    [](const Parameter& parameter, ChatDraft& draft) {
                                      draft.request.chat.tools.parallel = parameter.boolean();
                                    }));
  for (const char* name :
       {"thinking_budget_tokens", "thinking_token_budget", "thinking_budget", "reasoning_budget"}) {
    rules.push_back(mapped<ChatDraft>(name, "most tokens of the reasoning; -1 for no limit",
                                      read_reasoning_budget));
  }
  rules.push_back(
      accepted<ChatDraft>("prompt_cache_key", "a reused prefix never changes an answer"));
  rules.push_back(
      accepted<ChatDraft>("prompt_cache_retention", "a reused prefix never changes an answer"));
  rules.push_back(
      accepted<ChatDraft>("safety_identifier", "names the caller for the caller's own use"));
  add_chat_refusals(rules);
  return rules;
}

std::vector<tokenizer::TokenId> read_ids(const Parameter& array) {
  std::vector<tokenizer::TokenId> ids;
  ids.reserve(array.json().size());
  for (const Parameter& id : array.elements()) {
    ids.push_back(static_cast<tokenizer::TokenId>(
        id.integer(0, std::numeric_limits<tokenizer::TokenId>::max())));
  }
  return ids;
}

/// A string, an array of strings, an array of ids, or an array of arrays of ids.
void read_prompts(const Parameter& parameter, CompletionDraft& draft) {
  std::vector<Prompt>& prompts = draft.request.prompts;
  if (!parameter.json().is_array()) {
    prompts.emplace_back(parameter.string());
    return;
  }
  if (parameter.json().empty()) parameter.refuse("must not be empty");
  if (parameter.json().front().is_number()) {
    prompts.emplace_back(read_ids(parameter));
    return;
  }
  for (const Parameter& prompt : parameter.elements()) {
    if (prompt.json().is_array()) {
      prompts.emplace_back(read_ids(prompt));
    } else {
      prompts.emplace_back(prompt.string());
    }
  }
}

ParameterRules<CompletionDraft> completion_rules() {
  ParameterRules<CompletionDraft> rules;
  rules.push_back(mapped<CompletionDraft>(
      "prompt", "a string, an array of strings, an array of ids, or an array of such arrays",
      read_prompts));
  add_common_rules(rules);
  rules.push_back(mapped<CompletionDraft>("echo", "the prompt before the answer; not with logprobs",
                                          [](const Parameter& parameter, CompletionDraft& draft) {
                                            draft.request.echo = parameter.boolean();
                                          }));
  rules.push_back(mapped<CompletionDraft>(
      "logprobs", "the generated tokens' log-probabilities and so many most likely ones, 0 to 20",
      [](const Parameter& parameter, CompletionDraft& draft) {
        draft.request.generation.logprobs =
            static_cast<int>(parameter.integer(0, top_logprobs_limit));
      }));
  rules.push_back(mapped<CompletionDraft>(
      "best_of", "only equal to n", [](const Parameter& parameter, CompletionDraft& draft) {
        draft.best_of = static_cast<int>(parameter.integer(1, protocol::choices_limit));
      }));
  rules.push_back(refused<CompletionDraft>("suffix", "filling in the middle is not there", {""}));
  return rules;
}

ParameterRules<TemplateRequest> template_rules() {
  ParameterRules<TemplateRequest> rules;
  rules.push_back(mapped<TemplateRequest>("messages", "the conversation, contents as text",
                                          [](const Parameter& parameter, TemplateRequest& request) {
                                            request.chat.messages =
                                                protocol::read_messages(parameter);
                                          }));
  rules.push_back(mapped<TemplateRequest>("model", "as in /v1/chat/completions",
                                          [](const Parameter& parameter, TemplateRequest& request) {
                                            request.model = parameter.string();
                                          }));
  add_template_rules<TemplateRequest>(
      rules, [](TemplateRequest& request) -> protocol::ChatInput& { return request.chat; });
  add_tool_rules<TemplateRequest>(
      rules, [](TemplateRequest& request) -> protocol::ChatInput& { return request.chat; });
  return rules;
}

}  // namespace

ChatRequest parse_chat(const Json& body, const generation::SamplingParameters& defaults) {
  static const ParameterRules<ChatDraft> rules = chat_rules();
  ChatDraft draft;
  draft.request.generation.sampling = defaults;
  apply_rules(body, rules, draft);
  protocol::require_member(body, "messages");
  check_stream_options(draft.has_stream_options, draft.request.streaming);
  if (draft.top_logprobs.value_or(0) > 0 && !draft.logprobs) {
    throw base::RequestError(400, "invalid_value",
                             "'top_logprobs' goes only with 'logprobs': true.", "top_logprobs");
  }
  if (draft.logprobs) draft.request.generation.logprobs = draft.top_logprobs.value_or(0);
  protocol::check_tools(draft.request.chat.tools);
  return std::move(draft.request);
}

CompletionRequest parse_completion(const Json& body,
                                   const generation::SamplingParameters& defaults) {
  static const ParameterRules<CompletionDraft> rules = completion_rules();
  CompletionDraft draft;
  draft.request.generation.sampling = defaults;
  apply_rules(body, rules, draft);
  protocol::require_member(body, "prompt");
  check_stream_options(draft.has_stream_options, draft.request.streaming);
  if (draft.best_of && *draft.best_of != draft.request.generation.choices) {
    throw base::RequestError(400, "unsupported_parameter",
                             "'best_of' is not supported unless it equals 'n'.", "best_of");
  }
  if (draft.request.echo && draft.request.generation.logprobs >= 0) {
    throw base::RequestError(400, "unsupported_parameter",
                             "'echo' together with 'logprobs' is not supported: there are no "
                             "log-probabilities of the prompt.",
                             "echo");
  }
  return std::move(draft.request);
}

TemplateRequest parse_template_request(const Json& body) {
  static const ParameterRules<TemplateRequest> rules = template_rules();
  TemplateRequest request;
  apply_rules(body, rules, request);
  protocol::require_member(body, "messages");
  return request;
}

std::vector<protocol::ParameterRow> list_parameters() {
  std::vector<protocol::ParameterRow> rows;
  append_rows(rows, "/v1/chat/completions", chat_rules());
  append_rows(rows, "/v1/completions", completion_rules());
  append_rows(rows, "/apply-template", template_rules());
  append_embedding_rows(rows);
  append_text_rows(rows);
  return rows;
}

}  // namespace espalier::server::openai
