#include "chat/call_forms.h"

#include <stdexcept>
#include <string>

namespace espalier::chat {
namespace {

constexpr std::string_view json_open = "{\"name\": \"";
constexpr std::string_view json_middle = "\", \"arguments\": ";
constexpr std::string_view json_parameters = "\", \"parameters\": ";
constexpr std::string_view tag_open = "<tool_call>\n{\"name\": \"";
constexpr std::string_view tag_close = "}\n</tool_call>";

constexpr std::array json_forms = {
    CallForm{"hermes_qwen_json", "", tag_open, json_middle, tag_close, "\n"},
    CallForm{"generic_json", "", tag_open, json_middle, tag_close, "\n"},
    CallForm{"ernie_json", "", tag_open, json_middle, tag_close, "\n"},
    CallForm{"granite3_json", "<|tool_call|>[", json_open, json_middle, "}", ", ", "]"},
    CallForm{"phi4_mini_json", "<|tool_call|>[", json_open, json_middle, "}", ", ",
             "]<|/tool_call|>"},
    CallForm{"internlm_plugin", "", "<|action_start|><|plugin|>\n{\"name\": \"", json_parameters,
             "}<|action_end|>", "\n"},
    CallForm{"nemotron_json", "<TOOLCALL>[", json_open, json_middle, "}", ", ", "]</TOOLCALL>"},
    CallForm{"hunyuan_json", "<tool_calls>[", json_open, json_middle, "}", ", ", "]</tool_calls>"},
    CallForm{"apriel_json", "<tool_calls>[", json_open, json_middle, "}", ", ", "]</tool_calls>"},
    CallForm{"minimax_m1_json", "<tool_calls>\n", json_open, json_middle, "}", "\n",
             "\n</tool_calls>"},
    CallForm{"gigachat_json", "", "function call<|role_sep|>\n{\"name\": \"", json_middle, "}", "",
             "", true},
    CallForm{"firefunction_json", " functools[", json_open, json_middle, "}", ", ", "]"},
    CallForm{"command_r7b_action", "<|START_ACTION|>[\n    ",
             "{\"tool_call_id\": \"\x01\", \"tool_name\": \"", json_parameters, "}", ",\n    ",
             "\n]<|END_ACTION|>"},
    CallForm{"command_r_action", "Action: ```json\n[\n    ", "{\"tool_name\": \"", json_parameters,
             "}", ",\n    ", "\n]```"},
    CallForm{"llama3_json", "", json_open, json_parameters, "}", "; "},
    CallForm{"deepseek_v3", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
             "\n```json\n", "\n```<｜tool▁call▁end｜>", "\n", "<｜tool▁calls▁end｜>"},
    CallForm{"deepseek_v31", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
             "<｜tool▁call▁end｜>", "", "<｜tool▁calls▁end｜>"},
    CallForm{"kimi_k2", "<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.",
             ":\x01<|tool_call_argument_begin|>", "<|tool_call_end|>", "",
             "<|tool_calls_section_end|>"},
    CallForm{"mistral_v3_json", "[TOOL_CALLS][", json_open, json_middle, "}", ", ", "]"},
    CallForm{"mistral_v11_args", "", "[TOOL_CALLS]", "[ARGS]"},
    CallForm{"functionary_v31", "", "<function=", ">", "</function>"},
    CallForm{"functionary_v32", "", "", "\n", "", ">>>"},
    CallForm{"gptoss_harmony", "", "<|channel|>commentary to=functions.",
             " <|constrain|>json<|message|>", "", "", "", true},
    CallForm{"solar_args", "<|tool_calls|>", "<|tool_call:begin|>\x02<|tool_call:name|>",
             "<|tool_call:args|>", "<|tool_call:end|>", "", "<|calls|>"},
};

constexpr ValueStops qwen_stops = {"</parameter>", "\n<parameter=", "\n</function>\n</tool_call>"};
constexpr ValueStops seed_stops = {"</parameter>",
                                   "\n<parameter=", "\n</function>\n</seed:tool_call>"};
constexpr ValueStops argument_stops = {"</arg_value>"};
constexpr ValueStops parameter_stops = {"</parameter>"};
constexpr ValueStops dsml_stops = {"</｜DSML｜parameter>"};
constexpr ValueStops short_stops = {"</param>"};
constexpr ValueStops quote_stops = {"<|\"|>"};

constexpr std::array argument_forms = {
    CallForm{"qwen3_coder_xml", "", "<tool_call>\n<function=", ">\n", "</function>\n</tool_call>",
             "\n", "", false, ArgumentForm::tagged, "<parameter=", ">\n", "\n</parameter>\n", "",
             "", qwen_stops},
    CallForm{"seed_oss_xml", "", "<seed:tool_call>\n<function=", ">\n",
             "</function>\n</seed:tool_call>", "\n", "", false, ArgumentForm::tagged,
             "<parameter=", ">", "</parameter>\n", "", "", seed_stops, true},
    CallForm{"glm45_xml", "", "<tool_call>", "\n", "</tool_call>", "\n", "", false,
             ArgumentForm::tagged, "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", "", "",
             argument_stops},
    CallForm{"minimax_m2", "<minimax:tool_call>\n", "<invoke name=\"", "\">\n", "</invoke>\n", "",
             "</minimax:tool_call>", false, ArgumentForm::tagged, "<parameter name=\"", "\">",
             "</parameter>\n", "", "", parameter_stops},
    CallForm{"deepseek_v32_dsml", "<｜DSML｜function_calls>\n", "<｜DSML｜invoke name=\"", "\">\n",
             "</｜DSML｜invoke>\n", "", "</｜DSML｜function_calls>", false, ArgumentForm::tagged,
             "<｜DSML｜parameter name=\"", "\" string=\"false\">", "</｜DSML｜parameter>\n", "",
             "\" string=\"true\">", dsml_stops},
    CallForm{"deepseek_v4_dsml", "<｜DSML｜tool_calls>\n", "<｜DSML｜invoke name=\"", "\">\n",
             "</｜DSML｜invoke>\n", "", "</｜DSML｜tool_calls>", false, ArgumentForm::tagged,
             "<｜DSML｜parameter name=\"", "\" string=\"false\">", "</｜DSML｜parameter>\n", "",
             "\" string=\"true\">", dsml_stops},
    CallForm{"hunyuan3_xml", "<tool_calls>\n", "<tool_call>", "<tool_sep>\n", "</tool_call>\n", "",
             "</tool_calls>", false, ArgumentForm::tagged, "<arg_key>", "</arg_key>\n<arg_value>",
             "</arg_value>\n", "", "", argument_stops},
    CallForm{"minicpm5_xml", "", "<function name=\"", "\">", "</function>", "", "", false,
             ArgumentForm::tagged, "<param name=\"", "\">", "</param>", "", "", short_stops},
    CallForm{"gemma4", "", "<|tool_call>call:", "{", "}<tool_call|>", "", "", false,
             ArgumentForm::listed, "", ":", ",", "<|\"|>", "", quote_stops},
    CallForm{"pythonic", "[", "", "(", ")", ", ", "]", false, ArgumentForm::listed, "", "=", ", "},
    CallForm{"lfm2_pythonic", "<|tool_call_start|>[", "", "(", ")", ", ", "]<|tool_call_end|>",
             false, ArgumentForm::listed, "", "=", ", "},
    CallForm{"olmo3_pythonic", "<function_calls>", "", "(", ")", "\n", "</function_calls>", false,
             ArgumentForm::listed, "", "=", ", "},
    CallForm{"gemma3_tool_code", "```tool_code\n", "", "(", ")", "\n", "\n```", false,
             ArgumentForm::listed, "", "=", ", "},
};

}  // namespace

const CallForm& find_form(std::string_view dialect) {
  for (const CallForm& form : json_forms) {
    if (form.dialect == dialect) return form;
  }
  for (const CallForm& form : argument_forms) {
    if (form.dialect == dialect) return form;
  }
  throw std::logic_error("[call_forms] there is no form for " + std::string(dialect));
}

}  // namespace espalier::chat
