// Every chat template of the reference fixtures against transformers' renderings.

#include "chat/template.h"

#include <chrono>
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/text_cases.h"

namespace espalier::chat {
namespace {

std::vector<std::filesystem::path> template_folders() {
  auto folders = tests::text_cases("tokenizers");
  std::erase_if(folders, [](const auto& folder) { return !exists(folder / "template.jinja"); });
  for (auto& folder : tests::text_cases("templates")) folders.push_back(std::move(folder));
  return folders;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// `template.jinja` is the default one, `template.NAME.jinja` the one called NAME.
std::map<std::string, std::string> read_variants(const std::filesystem::path& folder) {
  std::map<std::string, std::string> variants;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".jinja")) continue;
    const std::string variant =
        name == "template.jinja" ? "default" : name.substr(9, name.size() - 9 - 6);
    variants[variant] = read_file(entry.path());
  }
  return variants;
}

std::map<std::string, nlohmann::ordered_json> read_conversations() {
  std::ifstream file(*tests::shared_folder() / "fixtures/text/inputs/conversations.json");
  std::map<std::string, nlohmann::ordered_json> conversations;
  for (auto& conversation : nlohmann::ordered_json::parse(file)) {
    conversations[conversation["name"].get<std::string>()] = conversation;
  }
  return conversations;
}

std::string text_of(const nlohmann::ordered_json& conversation, const char* key) {
  return conversation.contains(key) ? conversation[key].dump() : std::string();
}

RenderRequest make_request(const nlohmann::ordered_json& conversation, const nlohmann::json& cases,
                           const nlohmann::json& entry) {
  // 2026-03-05 14:07:09, with the time zone set to UTC.
  constexpr std::int64_t fixed_time = 1'772'719'629;
  return {
      .messages_json = conversation["messages"].dump(),
      .tools_json = text_of(conversation, "tools"),
      .documents_json = text_of(conversation, "documents"),
      .kwargs_json = text_of(conversation, "kwargs"),
      .special_tokens = cases["special_tokens"].get<std::map<std::string, std::string>>(),
      .add_generation_prompt = conversation.value("add_generation_prompt", false),
      .continue_final_message = conversation.value("continue_final_message", false),
      .template_name = entry.value("template", std::string()),
      .now = std::chrono::system_clock::time_point(std::chrono::seconds(fixed_time)),
  };
}

class Templates : public testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
};

/// The rendering, or the error's message behind "error: ".
std::string outcome(const ChatTemplate& compiled, const RenderRequest& request) {
  try {
    return compiled.render(request);
  } catch (const base::RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    return std::string("error: ") + error.what();
  }
}

TEST_P(Templates, RenderAsTransformers) {
  const auto conversations = read_conversations();
  const auto cases = tests::read_json(GetParam() / "cases.json");
  const auto compiled = compile_template(read_variants(GetParam()), GetParam().string());
  for (const auto& entry : cases["chat"]) {
    SCOPED_TRACE(entry["conversation"].dump());
    const auto& conversation = conversations.at(entry["conversation"].get<std::string>());
    const std::string result = outcome(*compiled, make_request(conversation, cases, entry));
    if (entry.contains("rendered")) {
      EXPECT_EQ(result, entry["rendered"].get<std::string>());
    } else if (entry["error"]["kind"] == "template") {
      EXPECT_EQ(result, "error: " + entry["error"]["message"].get<std::string>());
    } else if (entry["error"]["message"] != "'NoneType' object is not iterable") {
      // A loop over none is empty here: see docs/templates.md.
      EXPECT_TRUE(result.starts_with("error: ")) << result << "\n" << entry["error"];
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Templates);
INSTANTIATE_TEST_SUITE_P(Text, Templates, testing::ValuesIn(template_folders()),
                         [](const auto& info) { return tests::case_name(info.param); });

TEST(TemplateFixtures, ArePresent) {
  if (!tests::shared_folder()) GTEST_SKIP() << "../shared is absent: no reference templates";
  EXPECT_FALSE(template_folders().empty());
}

TEST(ChatTemplates, MalformedSourceNamesTheFile) {
  try {
    compile_template({{"default", "{% if %}"}}, "model.gguf");
    FAIL() << "compiled";
  } catch (const base::LoadError& error) {
    EXPECT_NE(std::string(error.what()).find("model.gguf"), std::string::npos);
  }
}

}  // namespace
}  // namespace espalier::chat
