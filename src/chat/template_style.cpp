#include "chat/template_style.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view function = "look_up_probe";
constexpr std::string_view question = "What is the probe?";

struct Evidence {
  std::string_view dialect;
  std::vector<std::string_view> texts;  // all of them stand in what is looked at
};

/// Signs of a dialect in the way a template prints a call; the first whose texts are all there.
const std::vector<Evidence>& printed_evidence() {
  static const std::vector<Evidence> list = {
      {"hunyuan3_xml", {"<tool_call>look_up_probe<tool_sep>", "<arg_key>"}},
      {"glm45_xml", {"<tool_call>look_up_probe", "<arg_key>"}},
      {"seed_oss_xml", {"<seed:tool_call>", "<function=look_up_probe>"}},
      {"qwen3_coder_xml", {"<function=look_up_probe>", "<parameter="}},
      {"functionary_v31", {"<function=look_up_probe>{"}},
      {"minicpm5_xml", {"<function name=\"look_up_probe\">"}},
      {"deepseek_v4_dsml", {"<｜DSML｜tool_calls>"}},
      {"deepseek_v32_dsml", {"｜DSML｜invoke"}},
      {"minimax_m2", {"<invoke name=\"look_up_probe\">"}},
      {"gemma4", {"call:look_up_probe{"}},
      {"deepseek_v3", {"<｜tool▁call▁begin｜>", "```json"}},
      {"deepseek_v31", {"<｜tool▁call▁begin｜>"}},
      {"kimi_k2", {"<|tool_call_begin|>"}},
      {"mistral_v11_args", {"[TOOL_CALLS]", "[ARGS]"}},
      {"mistral_v3_json", {"[TOOL_CALLS]"}},
      {"solar_args", {"<|tool_call:begin|>"}},
      {"gptoss_harmony", {"to=functions.look_up_probe"}},
      {"functionary_v32", {">>>look_up_probe\n"}},
      {"command_r7b_action", {"<|START_ACTION|>"}},
      {"command_r_action", {"Action:", "\"tool_name\": \"look_up_probe\""}},
      {"gigachat_json", {"function call<|role_sep|>"}},
      {"firefunction_json", {"functools["}},
      {"internlm_plugin", {"<|action_start|>"}},
      {"nemotron_json", {"<TOOLCALL>"}},
      {"apriel_json", {"<tool_calls>[", "\"id\""}},
      {"minimax_m1_json", {"<tool_calls>\n{"}},
      {"hunyuan_json", {"<tool_calls>"}},
      {"phi4_mini_json", {"<|/tool_call|>"}},
      {"granite3_json", {"<|tool_call|>"}},
      {"lfm2_pythonic", {"<|tool_call_start|>"}},
      {"hermes_qwen_json", {"<tool_call>", "\"name\": \"look_up_probe\""}},
      {"pythonic", {"[look_up_probe("}},
      {"llama3_json", {"\"name\": \"look_up_probe\", \"parameters\":"}},
  };
  return list;
}

/// Signs in a template's source or in what it tells the model of tools.
const std::vector<Evidence>& source_evidence() {
  static const std::vector<Evidence> list = {
      {"deepseek_v4_dsml", {"<｜DSML｜tool_calls>"}},
      {"deepseek_v32_dsml", {"｜DSML｜"}},
      {"minimax_m2", {"<minimax:tool_call>"}},
      {"seed_oss_xml", {"<seed:tool_call>"}},
      {"kimi_k2", {"<|tool_call_argument_begin|>"}},
      {"deepseek_v3", {"<｜tool▁call▁begin｜>", "```json"}},
      {"deepseek_v31", {"<｜tool▁call▁begin｜>"}},
      {"mistral_v11_args", {"[TOOL_CALLS]", "[ARGS]"}},
      {"mistral_v3_json", {"[TOOL_CALLS]"}},
      {"gptoss_harmony", {"<|channel|>", "<|constrain|>"}},
      {"gptoss_harmony", {"<|channel|>analysis"}},
      {"functionary_v32", {">>>all"}},
      {"command_r7b_action", {"<|START_ACTION|>"}},
      {"command_r_action", {"Action:", "directly_answer"}},
      {"command_r_action", {"Action:", "directly-answer"}},
      {"firefunction_json", {"functools["}},
      {"internlm_plugin", {"<|plugin|>"}},
      {"hunyuan3_xml", {"<tool_sep>", "<arg_key>"}},
      {"glm45_xml", {"<arg_key>"}},
      {"qwen3_coder_xml", {"<function=", "<parameter="}},
      {"functionary_v31", {"<function=", "</function>"}},
      {"nemotron_json", {"<TOOLCALL>"}},
      {"hunyuan_json", {"<tool_calls>"}},
      {"olmo3_pythonic", {"<function_calls>"}},
      {"lfm2_pythonic", {"<|tool_list_start|>"}},
      {"lfm2_pythonic", {"\"List of tools: [\""}},
      {"phi4_mini_json", {"<|tool|>"}},
      {"granite3_json", {"<|tool_call|>"}},
      {"gemma4", {"<|tool_call>"}},
      {"pythonic", {"<|python_start|>"}},
      {"pythonic", {"[func_name1(params_name1="}},
      {"llama3_json", {"<|python_tag|>"}},
      {"hermes_qwen_json", {"<tool_call>"}},
  };
  return list;
}

const Dialect* match(const std::vector<Evidence>& list, std::string_view text) {
  for (const Evidence& evidence : list) {
    const bool all = std::all_of(evidence.texts.begin(), evidence.texts.end(), [text](auto sign) {
      return text.find(sign) != std::string_view::npos;
    });
    if (all) return find_dialect(evidence.dialect);
  }
  return nullptr;
}

/// The pairs of marks that templates use; the first of which one stands in the source.
const std::vector<ReasoningMarks>& known_reasoning() {
  static const std::vector<ReasoningMarks> list = {
      {{"<|channel>thought"}, {"<channel|>"}},
      {{"<|START_THINKING|>"}, {"<|END_THINKING|>"}},
      {{"<seed:think>"}, {"</seed:think>"}},
      {{"[THINK]"}, {"[/THINK]"}},
      {{"Here are my reasoning steps:", "<thinking>"}, {"[BEGIN FINAL RESPONSE]", "</thinking>"}},
      {{"<thinking>"}, {"</thinking>"}},
      {{"<think>", "Here is my thought process:"}, {"</think>", "Here is my response:"}},
      {{"<|think|>"}, {"<|end|>"}},
  };
  return list;
}

Json probe_tools() {
  return Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", function},
          {"description", "Looks up a probe."},
          {"parameters",
           {{"type", "object"},
            {"properties", {{"probe_key", {{"type", "string"}, {"description", "The key."}}}}},
            {"required", {"probe_key"}}}}}}}});
}

Json probe_messages(bool arguments_as_text) {
  const Json arguments = {{"probe_key", "probe value"}};
  return Json::array(
      {{{"role", "user"}, {"content", question}},
       {{"role", "assistant"},
        {"tool_calls", Json::array({{{"id", "probe0001"},
                                     {"type", "function"},
                                     {"function",
                                      {{"name", function},
                                       {"arguments", arguments_as_text ? Json(arguments.dump())
                                                                       : arguments}}}}})}},
       {{"role", "tool"},
        {"name", function},
        {"tool_call_id", "probe0001"},
        {"content", "probe result"}}});
}

/// What the template makes of the messages; empty when it refuses.
std::string render(const ChatTemplate& compiled, const Json& messages,
                   const std::map<std::string, std::string>& special_tokens) {
  RenderRequest request;
  request.messages_json = messages.dump();
  request.tools_json = probe_tools().dump();
  request.special_tokens = special_tokens;
  request.now = std::chrono::system_clock::now();
  try {
    return compiled.render(request);
  } catch (const base::RequestError&) {
    return {};
  }
}

/// The part behind the question: what the template prints of the call.
std::string_view behind_question(std::string_view prompt) {
  const std::size_t found = prompt.rfind(question);
  return found == std::string_view::npos ? std::string_view() : prompt.substr(found);
}

void find_dialect_of(const ChatTemplate& compiled, std::string_view source,
                     const std::map<std::string, std::string>& special_tokens,
                     TemplateStyle& style) {
  const Json user = Json::array({{{"role", "user"}, {"content", question}}});
  const std::string offered = render(compiled, user, special_tokens);
  style.shows_tools = offered.find(function) != std::string::npos;
  for (const bool arguments_as_text : {false, true}) {
    const std::string prompt = render(compiled, probe_messages(arguments_as_text), special_tokens);
    const std::string_view printed = behind_question(prompt);
    style.shows_calls = printed.find("probe value") != std::string_view::npos;
    if (!style.shows_calls) continue;
    style.dialect = match(printed_evidence(), printed);
    if (style.dialect != nullptr) return;
  }
  if (style.dialect == nullptr) style.dialect = match(source_evidence(), source);
}

constexpr std::string_view tools_intro =
    "You may call functions to help with the user's request. The functions, each as a JSON "
    "object:\n";
constexpr std::string_view tools_form =
    "\nTo call one, answer with a JSON object with its name and arguments inside tags:\n"
    "<tool_call>\n{\"name\": \"FUNCTION\", \"arguments\": {…}}\n</tool_call>";

std::string tools_text(const ToolSet& tools) {
  std::string text(tools_intro);
  for (const Tool& tool : tools.tools()) {
    Json entry = {{"name", tool.name}, {"description", tool.description}};
    if (!tool.parameters.is_null()) entry["parameters"] = tool.parameters;
    text += entry.dump() + "\n";
  }
  return text.append(tools_form);
}

/// Past calls in the form in which new ones are asked for.
std::string calls_text(const Json& calls) {
  std::string text;
  for (const Json& call : calls) {
    const Json& called = call.at("function");
    Json entry = {{"name", called.at("name")},
                  {"arguments", called.value("arguments", Json::object())}};
    if (!text.empty()) text += "\n";
    text += std::string("<tool_call>\n") + entry.dump() + "\n</tool_call>";
  }
  return text;
}

}  // namespace

TemplateStyle find_style(const ChatTemplate* compiled,
                         const std::map<std::string, std::string>& sources,
                         const std::map<std::string, std::string>& special_tokens) {
  TemplateStyle style;
  std::string source;
  for (const auto& [name, text] : sources) source += text;
  if (compiled != nullptr) find_dialect_of(*compiled, source, special_tokens, style);
  if (style.dialect == nullptr) style.dialect = find_dialect("generic_json");
  for (const ReasoningMarks& marks : known_reasoning()) {
    const auto stands = [&source](const std::string& mark) {
      return source.find(mark) != std::string::npos;
    };
    if (std::none_of(marks.open.begin(), marks.open.end(), stands) &&
        std::none_of(marks.close.begin(), marks.close.end(), stands)) {
      continue;
    }
    style.reasoning = marks;
    style.reasons = style.dialect->message == nullptr;
    break;
  }
  if (!style.reasons) style.reasoning = style.dialect->reasoning;
  return style;
}

Json describe_tools(const Json& messages, const ToolSet& tools, const TemplateStyle& style) {
  if (style.dialect == nullptr) return messages;  // nothing is known of the template
  Json adapted = Json::array();
  if (!tools.empty() && !style.shows_tools) {
    Json system = {{"role", "system"}, {"content", tools_text(tools)}};
    const bool has_system = !messages.empty() && messages.front().value("role", "") == "system";
    if (has_system) {
      const std::string given = messages.front().value("content", "");
      system["content"] = given + "\n\n" + tools_text(tools);
    }
    adapted.push_back(std::move(system));
    adapted.insert(adapted.end(), messages.begin() + (has_system ? 1 : 0), messages.end());
  } else {
    adapted = messages;
  }
  if (style.shows_calls) return adapted;
  for (Json& message : adapted) {
    if (message.contains("tool_calls")) {
      std::string content = message.value("content", "");
      if (!content.empty()) content += "\n";
      message["content"] = content + calls_text(message["tool_calls"]);
      message.erase("tool_calls");
    } else if (message.value("role", "") == "tool") {
      message = {{"role", "user"},
                 {"content", std::string("<tool_response>\n") + message.value("content", "") +
                                 "\n</tool_response>"}};
    }
  }
  return adapted;
}

}  // namespace espalier::chat
