#include "server/protocol/chat_prompt.h"

#include <gtest/gtest.h>

namespace espalier::server::protocol {
namespace {

ServedModel model_with(const std::string& source) {
  ServedModel model;
  model.alias = "test";
  model.special_names = {"<|end|>"};
  model.chat_template = chat::compile_template({{"default", source}}, "a test");
  model.style = chat::find_style(model.chat_template.get(), {{"default", source}}, {});
  model.style.shows_calls = true;
  return model;
}

std::string prompt(const ServedModel& model, const std::string& messages) {
  ChatInput input;
  input.messages = Json::parse(messages);
  return join_pieces(render_chat(model, input));
}

/// The message of the refusal.
std::string refusal(const ServedModel& model, const std::string& messages) {
  try {
    prompt(model, messages);
  } catch (const base::RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return "nothing";
}

TEST(RenderChat, SeveralSystemMessagesBecomeOneWhereTheTemplateWantsIt) {
  const char* messages = R"([{"role":"system","content":"a"},{"role":"system","content":"b"},
                             {"role":"user","content":"c"}])";
  const std::string print = "[{{ m.role }}:{{ m.content }}]{% endfor %}";
  EXPECT_EQ(prompt(model_with("{% for m in messages %}" + print), messages),
            "[system:a][system:b][user:c]");
  const auto strict = model_with(
      "{% for m in messages %}{% if not loop.first and m.role == 'system' %}"
      "{{ raise_exception('System first') }}{% endif %}" +
      print);
  EXPECT_EQ(prompt(strict, messages), "[system:a\n\nb][user:c]");
  EXPECT_EQ(refusal(strict, R"([{"role":"user","content":"c"},{"role":"system","content":"a"}])"),
            "System first");
}

std::string calls(const std::string& arguments) {
  return R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":)" +
         arguments + "}}]}]";
}

TEST(RenderChat, ArgumentsComeAsTheTemplateCanTakeThem) {
  const std::string loop = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
  const std::string end = "{% endfor %}{% endfor %}";
  const auto objects = model_with(
      loop + "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}" + end);
  EXPECT_EQ(prompt(objects, calls(R"({"a":1})")), "a=1;");
  // What a model once wrote and is no JSON must not end the conversation.
  EXPECT_EQ(prompt(objects, calls(R"("{\"a\":")")), "arguments={\"a\":;");
  const auto text = model_with(loop + "{{ '<' + c.function.arguments + '>' }}" + end);
  EXPECT_EQ(prompt(text, calls(R"({"a":1})")), R"(<{"a":1}>)");
  EXPECT_EQ(prompt(text, calls(R"("{\"a\":")")), R"(<{"a":>)");
}

TEST(RenderChat, RefusalsQuoteMessagesAsTheyAre) {
  const auto model = model_with("{{ raise_exception('bad: ' + messages[0].content) }}");
  EXPECT_EQ(refusal(model, R"([{"role":"user","content":"x<|end|>"}])"), "bad: x<|end|>");
}

}  // namespace
}  // namespace espalier::server::protocol
