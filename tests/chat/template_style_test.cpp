// The dialect that each model's template is taken for. The expected names are those of the formats
// that the models' authors document.

#include "chat/template_style.h"

#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "chat/response_parser.h"
#include "support/text_cases.h"

namespace espalier::chat {
namespace {

struct StyleCase {
  const char* folder;
  const char* dialect;
  const char* reasoning = "";  // the mark that opens it, where the template knows one
};

const StyleCase style_cases[] = {
    {"templates/Apriel-1.6-15b-Thinker-fixed", "apriel_json", "Here are my reasoning steps:"},
    {"templates/Bielik-11B-v3.0-Instruct", "hermes_qwen_json", "<think>"},
    {"templates/ByteDance-Seed-OSS", "seed_oss_xml", "<seed:think>"},
    {"templates/CohereForAI-c4ai-command-r-plus-tool_use", "command_r_action"},
    {"templates/CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command_r7b_action",
     "<|START_THINKING|>"},
    {"templates/GLM-4.6", "glm45_xml", "<think>"},
    {"templates/GigaChat3-10B-A1.8B", "gigachat_json"},
    {"templates/HuggingFaceTB-SmolLM3-3B", "generic_json", "<think>"},
    {"templates/Kimi-K2-Instruct", "kimi_k2"},
    {"templates/Kimi-K2-Thinking", "kimi_k2", "<think>"},
    {"templates/LFM2-8B-A1B", "lfm2_pythonic"},
    {"templates/LFM2.5-Instruct", "lfm2_pythonic", "<think>"},
    {"templates/MiniMax-M1", "minimax_m1_json"},
    {"templates/MiniMax-M2", "minimax_m2", "<think>"},
    {"templates/NVIDIA-Nemotron-Nano-v2", "nemotron_json", "<think>"},
    {"templates/NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes_qwen_json"},
    {"templates/Qwen-QwQ-32B", "hermes_qwen_json", "<think>"},
    {"templates/Qwen-Qwen2.5-7B-Instruct", "hermes_qwen_json"},
    {"templates/Qwen3-Coder", "qwen3_coder_xml"},
    {"templates/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3", "<think>"},
    {"templates/deepseek-ai-DeepSeek-V3.1", "deepseek_v31", "<think>"},
    {"templates/fireworks-ai-llama-3-firefunction-v2", "firefunction_json"},
    {"templates/google-gemma-2-2b-it", "generic_json"},
    {"templates/google-gemma-4-31B-it", "gemma4", "<|channel>thought"},
    {"templates/ibm-granite-granite-3.3-2B-Instruct", "granite3_json", "<think>"},
    {"templates/ibm-granite-granite-4.0", "hermes_qwen_json"},
    {"templates/lenml-llama3", "generic_json"},
    {"templates/meetkai-functionary-medium-v3.1", "functionary_v31"},
    {"templates/meta-llama-Llama-3.1-8B-Instruct", "llama3_json"},
    {"templates/microsoft-Phi-3.5-mini-instruct", "generic_json"},
    {"templates/mistralai-Mistral-Nemo-Instruct-2407", "mistral_v3_json"},
    {"templates/moonshotai-Kimi-K2", "kimi_k2"},
    {"templates/openbmb-MiniCPM5-1B", "minicpm5_xml", "<think>"},
    {"templates/poolside-Laguna-S-2.1", "glm45_xml", "<think>"},
    {"templates/qwen2-gguf", "generic_json"},
    {"templates/unsloth-mistral-Devstral-Small-2507", "mistral_v11_args"},
    {"templates/upstage-Solar-Open-100B", "solar_args", "<|think|>"},
    {"tokenizers/command_r_plus", "command_r_action"},
    {"tokenizers/deepseek_v3", "deepseek_v3"},
    {"tokenizers/gptoss", "gptoss_harmony"},
    {"tokenizers/llama3_2", "llama3_json"},
    {"tokenizers/mistral_nemo", "mistral_v3_json"},
    {"tokenizers/qwen3", "hermes_qwen_json", "<think>"},
    {"tokenizers/smollm2", "generic_json"},
};

std::map<std::string, std::string> read_sources(const std::filesystem::path& folder) {
  std::map<std::string, std::string> sources;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".jinja")) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    sources[name == "template.jinja" ? "default" : name.substr(9, name.size() - 15)] = {
        std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  return sources;
}

TEST(TemplateStyle, FoundFromTheTemplateItself) {
  const auto shared = tests::shared_folder();
  if (!shared || !exists(*shared / "fixtures/text")) {
    GTEST_SKIP() << "no template fixtures; set ESPALIER_SHARED";
  }
  for (const StyleCase& expected : style_cases) {
    const auto folder = *shared / "fixtures/text" / expected.folder;
    if (!exists(folder)) continue;
    const auto sources = read_sources(folder);
    const auto compiled = compile_template(sources, expected.folder);
    const TemplateStyle style = find_style(compiled.get(), sources, {});
    ASSERT_NE(style.dialect, nullptr) << expected.folder;
    EXPECT_EQ(style.dialect->name, expected.dialect) << expected.folder;
    if (*expected.reasoning == 0) continue;
    EXPECT_TRUE(style.reasons) << expected.folder;
    EXPECT_EQ(style.reasoning.open.front(), expected.reasoning) << expected.folder;
  }
}

TEST(TemplateStyle, IsSeenInThePrintedCall) {
  const auto dialect_of = [](const std::string& call) {
    const std::string source =
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{% set f = c.function %}" +
        call + "{% endfor %}{% endfor %}";
    const auto compiled = compile_template({{"default", source}}, "a test");
    return find_style(compiled.get(), {{"default", source}}, {}).dialect->name;
  };
  const std::string arguments =
      "{% for k, v in f.arguments.items() %}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}"
      "</arg_value>{% endfor %}";
  EXPECT_EQ(dialect_of("<tool_call>{{ f.name }}\n" + arguments + "</tool_call>"), "glm45_xml");
  EXPECT_EQ(dialect_of("<tool_calls><tool_call>{{ f.name }}<tool_sep>" + arguments),
            "hunyuan3_xml");
  const std::string invoke =
      "<｜DSML｜invoke name=\"{{ f.name }}\">{{ f.arguments.probe_key }}</｜DSML｜invoke>";
  EXPECT_EQ(dialect_of("<｜DSML｜function_calls>" + invoke), "deepseek_v32_dsml");
  EXPECT_EQ(dialect_of("<｜DSML｜tool_calls>" + invoke), "deepseek_v4_dsml");
}

TEST(TemplateStyle, ToolsAreDescribedToATemplateWithoutThem) {
  const nlohmann::ordered_json messages = nlohmann::ordered_json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
    {"role": "tool", "tool_call_id": "a", "content": "sunny"}])");
  const ToolSet tools(R"([{"type": "function", "function": {"name": "f", "description": "F."}}])");
  TemplateStyle style;
  style.dialect = find_dialect("generic_json");
  const auto adapted = describe_tools(messages, tools, style);
  ASSERT_EQ(adapted.size(), 4U);
  const std::string system = adapted[0]["content"];
  EXPECT_TRUE(system.starts_with("Be brief."));
  EXPECT_NE(system.find(R"({"name":"f","description":"F."})"), std::string::npos) << system;
  // What the model is shown of its own call is what the dialect's parser reads.
  const ParsedMessage parsed =
      parse_response({.dialect = style.dialect}, adapted[2]["content"].get<std::string>());
  ASSERT_EQ(parsed.tool_calls.size(), 1U);
  EXPECT_EQ(parsed.tool_calls[0].name, "f");
  EXPECT_EQ(parsed.tool_calls[0].arguments, R"({"x":1})");
  EXPECT_FALSE(adapted[2].contains("tool_calls"));
  EXPECT_EQ(adapted[3]["role"], "user");
}

}  // namespace
}  // namespace espalier::chat
