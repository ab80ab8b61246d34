// The table of dialects. Sources: the models' chat templates and the prompt formats on their cards.

#include <algorithm>
#include <tuple>

#include "chat/dialect.h"
#include "chat/dialects/gemma_calls.h"
#include "chat/dialects/header_calls.h"
#include "chat/dialects/json_calls.h"
#include "chat/dialects/python_calls.h"
#include "chat/dialects/routed_messages.h"
#include "chat/dialects/tagged_calls.h"

namespace espalier::chat {
namespace {

const ReasoningMarks think = {{"<think>"}, {"</think>"}};
const std::vector<std::string> chatml_endings = {"<|im_end|>", "<|endoftext|>"};
const std::vector<std::string> llama_endings = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"};

// A table. NOLINTNEXTLINE(readability-function-size)
void add_json_dialects(std::vector<Dialect>& list) {
  list.push_back({.name = "hermes_qwen_json",
                  .description = "Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3: objects in tags",
                  .calls = json_calls({.openings = {"<tool_call>"}, .stops = {"</tool_call>"}}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</tool_call>"},
                  .endings = chatml_endings});
  list.push_back({.name = "granite3_json",
                  .description = "Granite 3: an array behind a mark",
                  .calls = json_calls(
                      {.openings = {"<|tool_call|>", "<tool_call>"}, .stops = {"</tool_call>"}}),
                  .message = nullptr,
                  .reasoning = {{"<think>", "Here is my thought process:"},
                                {"</think>", "Here is my response:"}},
                  .closings = {"</tool_call>", "<response>"},
                  .endings = {"</response>", "<|end_of_text|>"}});
  list.push_back({.name = "phi4_mini_json",
                  .description = "Phi-4-mini: an array between marks",
                  .calls = json_calls({.openings = {"<|tool_call|>"}, .stops = {"<|/tool_call|>"}}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"<|/tool_call|>"},
                  .endings = {"<|end|>", "<|endoftext|>"}});
  list.push_back({.name = "internlm_plugin",
                  .description = "InternLM 2.5 and 3: an object between marks",
                  .calls = json_calls(
                      {.openings = {"<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"},
                       .stops = {"<|action_end|>"}}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"<|action_end|>"},
                  .endings = chatml_endings});
  list.push_back({.name = "nemotron_json",
                  .description = "Nemotron Nano 2: an array in tags",
                  .calls = json_calls({.openings = {"<TOOLCALL>"}, .stops = {"</TOOLCALL>"}}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</TOOLCALL>"},
                  .endings = {"<SPECIAL_12>"}});
  list.push_back({.name = "hunyuan_json",
                  .description = "Hunyuan: an array in tags, the answer in tags too",
                  .calls = json_calls({.openings = {"<tool_calls>", "<tool_call>"},
                                       .stops = {"</tool_calls>", "</tool_call>"}}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</tool_calls>", "</tool_call>", "<answer>", "</answer>"},
                  .endings = {"</answer>", "<|eos|>"}});
  list.push_back({.name = "ernie_json",
                  .description = "Ernie 4.5: objects in tags, the answer in tags too",
                  .calls = json_calls({.openings = {"<tool_call>"}, .stops = {"</tool_call>"}}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</tool_call>", "<response>", "</response>"},
                  .endings = {"</response>", "</s>"}});
  list.push_back({.name = "apriel_json",
                  .description = "Apriel: an array in tags",
                  .calls = json_calls({.openings = {"<tool_calls>"}, .stops = {"</tool_calls>"}}),
                  .message = nullptr,
                  .reasoning = {{"<thinking>", "Here are my reasoning steps:"},
                                {"</thinking>", "[BEGIN FINAL RESPONSE]"}},
                  .closings = {"</tool_calls>", "[BEGIN FINAL RESPONSE]"},
                  .endings = {"[END FINAL RESPONSE]", "<|end|>"}});
  list.push_back({.name = "minimax_m1_json",
                  .description = "MiniMax M1: objects on lines in tags",
                  .calls = json_calls({.openings = {"<tool_calls>"}, .stops = {"</tool_calls>"}}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</tool_calls>"},
                  .endings = {"<end_of_sentence>"}});
  list.push_back({.name = "gigachat_json",
                  .description = "GigaChat 3: an object in a turn of its own",
                  .calls = json_calls(
                      {.openings = {"function call<|role_sep|>"}, .stops = {"<|message_sep|>"}}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"<|message_sep|>"},
                  .endings = {"<|message_sep|>"},
                  .markup = {"<|role_sep|>"}});
  list.push_back({.name = "firefunction_json",
                  .description = "FireFunction 2: functools and an array",
                  .calls = json_calls({.openings = {"functools"}}),
                  .message = nullptr,
                  .endings = llama_endings});
  list.push_back({.name = "generic_json",
                  .description = "models without a form of their own, told the Hermes one",
                  .calls = json_calls({.openings = {"<tool_call>"},
                                       .stops = {"</tool_call>"},
                                       .bare = true,
                                       .bare_array = true}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</tool_call>"},
                  .endings = chatml_endings});
}

void add_cohere_dialects(std::vector<Dialect>& list) {
  list.push_back(
      {.name = "command_r7b_action",
       .description = "Command R7B, Command A: an action block with an array",
       .calls = json_calls({.openings = {"<|START_ACTION|>"}, .stops = {"<|END_ACTION|>"}}),
       .message = nullptr,
       .reasoning = {{"<|START_THINKING|>"}, {"<|END_THINKING|>"}},
       .closings = {"<|END_ACTION|>"},
       .hidden = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
       .endings = {"<|END_OF_TURN_TOKEN|>"}});
  list.push_back({.name = "command_r_action",
                  .description = "Command R and R+: Action: and an array in a fenced block",
                  .calls = json_calls(
                      {.openings = {"Action:"}, .silent = {"directly-answer", "directly_answer"}}),
                  .message = nullptr,
                  .reasoning = {{"Plan:"}, {"\nAction:"}},
                  .endings = {"<|END_OF_TURN_TOKEN|>"}});
}

void add_python_dialects(std::vector<Dialect>& list) {
  list.push_back({.name = "llama3_json",
                  .description = "Llama 3.1 to 3.3: a bare object, or a call behind <|python_tag|>",
                  .calls = llama3_calls(),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"<|eom_id|>"},
                  .endings = llama_endings});
  list.push_back({.name = "pythonic",
                  .description = "Llama 3.2 and 4: a Python list of calls",
                  .calls = python_calls({.openings = {"<|python_start|>"}, .bare = true}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"<|python_end|>"},
                  .endings = {"<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>"}});
  list.push_back({.name = "lfm2_pythonic",
                  .description = "LFM2: a Python list of calls between marks",
                  .calls = python_calls({.openings = {"<|tool_call_start|>"}}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"<|tool_call_end|>"},
                  .endings = chatml_endings});
  list.push_back({.name = "olmo3_pythonic",
                  .description = "Olmo 3: Python calls on lines in tags",
                  .calls = python_calls({.openings = {"<function_calls>"}}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</function_calls>"},
                  .endings = chatml_endings});
  list.push_back({.name = "gemma3_tool_code",
                  .description = "Gemma 3: Python calls in a tool_code block",
                  .calls = python_calls({.openings = {"```tool_code"}}),
                  .message = nullptr,
                  .closings = {"```"},
                  .endings = {"<end_of_turn>"}});
}

void add_header_dialects(std::vector<Dialect>& list) {
  const std::vector<std::string> deepseek_closings = {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>",
                                                      "<｜tool_calls_end｜>"};
  for (const auto& [name, description] :
       {std::pair{"deepseek_v3", "DeepSeek V3 and R1: a name and a fenced block"},
        std::pair{"deepseek_v31", "DeepSeek V3.1: a name and an object"}}) {
    list.push_back({.name = name,
                    .description = description,
                    .calls = deepseek_calls(),
                    .message = nullptr,
                    .reasoning = think,
                    .closings = deepseek_closings,
                    .endings = {"<｜end▁of▁sentence｜>"},
                    .markup = {"<｜tool▁sep｜>"}});
  }
  list.push_back(
      {.name = "kimi_k2",
       .description = "Kimi K2: a section of calls with the name in the id",
       .calls = kimi_calls(),
       .message = nullptr,
       .reasoning = think,
       .closings = {"<|tool_call_end|>", "<|tool_calls_section_end|>", "<|tool_call_section_end|>"},
       .endings = {"<|im_end|>"},
       .markup = {"<|tool_call_argument_begin|>"}});
  for (const auto& [name, description] :
       {std::pair{"mistral_v3_json", "Mistral 7B v0.3 to Small 3.1: an array behind a mark"},
        std::pair{"mistral_v11_args", "Mistral Small 3.2 and later: NAME[ARGS]{…}"}}) {
    list.push_back({.name = name,
                    .description = description,
                    .calls = mistral_calls(),
                    .message = nullptr,
                    .reasoning = {{"[THINK]"}, {"[/THINK]"}},
                    .endings = {"</s>"},
                    .markup = {"[ARGS]", "[CALL_ID]"}});
  }
  list.push_back(
      {.name = "functionary_v31",
       .description = "Functionary 3.1: <function=NAME>{…}</function>",
       .calls = header_calls({.begin = "<function=", .after_name = ">", .stops = {"</function>"}}),
       .message = nullptr,
       .closings = {"</function>"},
       .endings = llama_endings});
  list.push_back({.name = "functionary_v32",
                  .description = "Functionary 3.2: parts that start with their recipient",
                  .calls = nullptr,
                  .message = functionary_messages()});
  list.push_back({.name = "gptoss_harmony",
                  .description = "gpt-oss: channels and recipients",
                  .calls = nullptr,
                  .message = harmony_messages(),
                  .markup = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>",
                             "<|call|>", "<|return|>"}});
  list.push_back({.name = "solar_args",
                  .description = "Solar Open: id, name and arguments between marks",
                  .calls = header_calls({.sections = {"<|tool_calls|>"},
                                         .begin = "<|tool_call:begin|>",
                                         .after_id = "<|tool_call:name|>",
                                         .after_name = "<|tool_call:args|>",
                                         .stops = {"<|tool_call:end|>"}}),
                  .message = nullptr,
                  .reasoning = {{"<|think|>"}, {"<|end|>"}},
                  .closings = {"<|tool_call:end|>", "<|calls|>", "<|end|>"},
                  .hidden = {"<|begin|>assistant", "<|content|>"},
                  .endings = {"<|end|>", "<|calls|>"},
                  .markup = {"<|tool_call:name|>", "<|tool_call:args|>"}});
}

// A table. NOLINTNEXTLINE(readability-function-size)
void add_tagged_dialects(std::vector<Dialect>& list) {
  const auto function_tags = [](std::string section, bool line) {
    return TaggedCallForm{
        .sections = {"<" + section + ">"},
        .function_open = "<function=",
        .function_name_end = ">",
        .parameter_open = "<parameter=",
        .parameter_name_end = ">",
        .value_ends = {"</parameter>", "\n<parameter=", "\n</function>\n</" + section + ">"},
        .function_close = "</function>",
        .line_around_value = line};
  };
  list.push_back({.name = "qwen3_coder_xml",
                  .description = "Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5: a tag a parameter",
                  .calls = tagged_calls(function_tags("tool_call", true)),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</tool_call>", "</function>"},
                  .endings = chatml_endings});
  list.push_back({.name = "seed_oss_xml",
                  .description = "Seed-OSS: a tag a parameter",
                  .calls = tagged_calls(function_tags("seed:tool_call", true)),
                  .message = nullptr,
                  .reasoning = {{"<seed:think>"}, {"</seed:think>"}},
                  .closings = {"</seed:tool_call>", "</function>"},
                  .endings = {"<seed:eos>"}});
  list.push_back({.name = "glm45_xml",
                  .description = "GLM 4.5 and later: tags around keys and values",
                  .calls = tagged_calls({.sections = {"<tool_call>"},
                                         .function_open = "",
                                         .parameter_open = "<arg_key>",
                                         .parameter_name_end = "</arg_key>",
                                         .value_open = "<arg_value>",
                                         .value_ends = {"</arg_value>"},
                                         .function_close = "</tool_call>"}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</tool_call>"},
                  .endings = {"<|user|>", "<|observation|>", "<|endoftext|>"}});
  list.push_back({.name = "hunyuan3_xml",
                  .description = "Hunyuan 3: a list of calls with tags around keys and values",
                  .calls = tagged_calls({.sections = {"<tool_calls>"},
                                         .function_open = "<tool_call>",
                                         .function_name_end = "<tool_sep>",
                                         .parameter_open = "<arg_key>",
                                         .parameter_name_end = "</arg_key>",
                                         .value_open = "<arg_value>",
                                         .value_ends = {"</arg_value>"},
                                         .function_close = "</tool_call>"}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</tool_calls>", "</tool_call>"},
                  .endings = {"<｜hy_eos｜>"},
                  .markup = {"<tool_sep>"}});
  const auto invoke_tags = [](std::string section, const std::string& mark) {
    return TaggedCallForm{.sections = {std::move(section)},
                          .function_open = "<" + mark + "invoke name=\"",
                          .function_name_end = "\">",
                          .parameter_open = "<" + mark + "parameter name=\"",
                          .parameter_name_end = "\"",
                          .value_ends = {"</" + mark + "parameter>"},
                          .function_close = "</" + mark + "invoke>",
                          .attributes = true};
  };
  list.push_back({.name = "minimax_m2",
                  .description = "MiniMax M2: invoke and parameter tags",
                  .calls = tagged_calls(invoke_tags("<minimax:tool_call>", "")),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</minimax:tool_call>", "</invoke>"},
                  .endings = {"[e~["}});
  for (const auto& [name, description, section] :
       {std::tuple{"deepseek_v32_dsml", "DeepSeek V3.2: invoke and parameter tags with a mark",
                   "｜DSML｜function_calls>"},
        std::tuple{"deepseek_v4_dsml", "DeepSeek V4: the same in another section",
                   "｜DSML｜tool_calls>"}}) {
    list.push_back({.name = name,
                    .description = description,
                    .calls = tagged_calls(invoke_tags(std::string("<") + section, "｜DSML｜")),
                    .message = nullptr,
                    .reasoning = think,
                    .closings = {std::string("</") + section, "</｜DSML｜invoke>"},
                    .endings = {"<｜end▁of▁sentence｜>"},
                    .markup = {"｜DSML｜"}});
  }
  list.push_back({.name = "minicpm5_xml",
                  .description = "MiniCPM 5: function and param tags",
                  .calls = tagged_calls({.function_open = "<function name=\"",
                                         .function_name_end = "\">",
                                         .parameter_open = "<param name=\"",
                                         .parameter_name_end = "\">",
                                         .value_ends = {"</param>"},
                                         .function_close = "</function>"}),
                  .message = nullptr,
                  .reasoning = think,
                  .closings = {"</function>"},
                  .endings = chatml_endings});
  list.push_back({.name = "gemma4",
                  .description = "Gemma 4: call:NAME{key:value,…} between marks",
                  .calls = gemma4_calls(),
                  .message = nullptr,
                  .reasoning = {{"<|channel>thought"}, {"<channel|>"}},
                  .closings = {"<tool_call|>"},
                  .endings = {"<turn|>"},
                  .markup = {"<|\"|>"}});
}

std::vector<Dialect> make_dialects() {
  std::vector<Dialect> list;
  add_json_dialects(list);
  add_cohere_dialects(list);
  add_python_dialects(list);
  add_header_dialects(list);
  add_tagged_dialects(list);
  std::sort(list.begin(), list.end(),
            [](const Dialect& left, const Dialect& right) { return left.name < right.name; });
  return list;
}

}  // namespace

const std::vector<Dialect>& dialects() {
  static const std::vector<Dialect> list = make_dialects();
  return list;
}

const Dialect* find_dialect(std::string_view name) {
  const auto found = std::find_if(dialects().begin(), dialects().end(),
                                  [name](const Dialect& dialect) { return dialect.name == name; });
  return found == dialects().end() ? nullptr : &*found;
}

}  // namespace espalier::chat
