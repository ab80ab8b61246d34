#include "server/protocol/request_template.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "server/protocol/chat_prompt.h"

namespace espalier::server::protocol {
namespace {

constexpr const char* own =
    "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if tools %}{{ tools | tojson }}"
    "{% endif %}";

/// A model with a few tokens, two of them special, and two templates.
std::shared_ptr<ServedModel> make_model() {
  tokenizer::GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "<s>", "</s>", "<think>", "</think>", "a", "b"};
  vocabulary.types = {2, 3, 3, 3, 3, 1, 1};
  vocabulary.scores.resize(vocabulary.tokens.size());
  auto model = std::make_shared<ServedModel>();
  model->alias = "test";
  model->text.tokenizer = tokenizer::build_tokenizer(vocabulary, "a test");
  model->templates = std::make_shared<TemplateCache>();
  set_template(*model, {{"default", own}, {"short", "short"}}, "a test");
  return model;
}

std::string prompt(const ServedModel& model) {
  ChatInput input;
  input.messages = Json::parse(R"([{"role":"user","content":"hi"}])");
  return join_pieces(render_chat(model, input));
}

/// The refusal's parameter and message.
std::string refusal(const std::shared_ptr<ServedModel>& model, const std::string& chosen) {
  try {
    prompt(*with_template(model, chosen));
  } catch (const base::RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param() + ": " + error.what();
  }
  return "nothing";
}

TEST(RequestTemplate, IsTheModelsOneOfItsOrTheRequests) {
  const auto model = make_model();
  EXPECT_EQ(with_template(model, ""), model);
  EXPECT_EQ(prompt(*model), "[hi]");
  EXPECT_EQ(prompt(*with_template(model, "short")), "short");
  EXPECT_EQ(prompt(*with_template(model, "<{{ messages[0].content }}>")), "<hi>");
}

TEST(RequestTemplate, TellsHowAnswersAreWritten) {
  const auto model = make_model();
  EXPECT_FALSE(model->style.reasons);
  const std::string source = std::string(own) + "<think>\n";
  const auto chosen = with_template(model, source);
  EXPECT_TRUE(chosen->style.reasons);
  EXPECT_EQ(chosen->style.reasoning.close.front(), "</think>");
  EXPECT_EQ(chosen->markup_tokens, (std::unordered_set<tokenizer::TokenId>{3, 4}));
  // The model itself is as before.
  EXPECT_FALSE(model->style.reasons);
}

TEST(RequestTemplate, IsCompiledOnce) {
  const auto model = make_model();
  const std::string source = "{{ 1 }}";
  const auto first = with_template(model, source);
  EXPECT_EQ(with_template(model, source), first);
  for (int i = 0; i < 40; ++i) with_template(model, "{{ 2 }}" + std::to_string(i));
  EXPECT_NE(with_template(model, source), first);  // only the last few are kept
}

TEST(RequestTemplate, KeepsTheDialectThatTheOperatorChose) {
  const auto model = make_model();
  model->tool_dialect = "pythonic";
  EXPECT_EQ(with_template(model, "{{ 1 }}")->style.dialect->name, "pythonic");
}

TEST(RequestTemplate, RefusalsSayWhatIsWrong) {
  const auto model = make_model();
  EXPECT_EQ(refusal(model, "none"),
            "chat_template: The model has no chat template named 'none': it has 'default', "
            "'short'.");
  EXPECT_EQ(refusal(model, "{% if %}").substr(0, 15), "chat_template: ");
  EXPECT_EQ(refusal(model, "{{ raise_exception('I do not do hi') }}"), "messages: I do not do hi");
}

}  // namespace
}  // namespace espalier::server::protocol
