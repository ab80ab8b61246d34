#include "server/protocol/chat_messages.h"

#include <gtest/gtest.h>

namespace espalier::server::protocol {
namespace {

Json read(const char* text) {
  const Json messages = Json::parse(text);
  return read_messages(Parameter("messages", messages));
}

std::string refused_parameter(const char* text) {
  try {
    read(text);
  } catch (const base::RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param();
  }
  return "nothing";
}

TEST(ReadMessages, FlattensTextParts) {
  EXPECT_EQ(read(R"([{"role":"user","content":[{"type":"text","text":"a"},
                                               {"type":"text","text":"b"}]}])"),
            Json::parse(R"([{"role":"user","content":"a\nb"}])"));
}

TEST(ReadMessages, TheDeveloperIsTheSystem) {
  EXPECT_EQ(read(R"([{"role":"developer","content":"x"}])")[0]["role"], "system");
}

TEST(ReadMessages, AnAssistantMayHaveNoContent) {
  const Json messages = read(R"([{"role":"assistant","content":null,"tool_calls":[
      {"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}])");
  EXPECT_EQ(messages[0]["content"], "");
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"], Json::parse(R"({"a":1})"));
}

TEST(ReadMessages, BadArgumentsInTheHistoryStayText) {
  const Json messages = read(R"([{"role":"assistant","tool_calls":[
      {"id":"x","type":"function","function":{"name":"f","arguments":"{\"a\":"}}]}])");
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"], "{\"a\":");
}

TEST(ReadMessages, ArgumentsOfEveryFormAreAnObject) {
  const Json expected = Json::parse(R"({"a":1})");
  const auto arguments = [](const std::string& member) {
    const std::string text =
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"f")" + member + "}}]}]";
    return read(text.c_str())[0]["tool_calls"][0]["function"]["arguments"];
  };
  EXPECT_EQ(arguments(R"(,"arguments":{"a":1})"), expected);
  EXPECT_EQ(arguments(R"(,"arguments":"{\"a\":1}")"), expected);
  EXPECT_EQ(arguments(R"(,"arguments":"\"{\\\"a\\\":1}\"")"), expected);
  EXPECT_EQ(arguments(R"(,"arguments":"")"), Json::object());
  EXPECT_EQ(arguments(R"(,"arguments":null)"), Json::object());
  EXPECT_EQ(arguments(""), Json::object());
  EXPECT_EQ(arguments(R"(,"arguments":"\"a")"), "\"a");
}

TEST(ReadMessages, TakesTheOlderFormOfCalls) {
  const Json messages = read(R"([
      {"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},
      {"role":"function","name":"f","content":"done"}])");
  EXPECT_EQ(messages[0]["tool_calls"],
            Json::parse(R"([{"type":"function","function":{"name":"f","arguments":{}}}])"));
  EXPECT_EQ(messages[1]["role"], "tool");
}

TEST(ReadMessages, AToolMaySayNothing) {
  EXPECT_EQ(read(R"([{"role":"tool","tool_call_id":"a","content":null}])")[0]["content"], "");
}

TEST(ReadMessages, DeeplyNestedArgumentsStayText) {
  std::string deep = R"({"a":)";
  deep.append(200'000, '[').append(200'000, ']').append("}");
  for (const std::string& text : {deep, Json(deep).dump()}) {
    const Json call =
        Json::object({{"function", Json::object({{"name", "f"}, {"arguments", text}})}});
    const Json messages =
        Json::array({Json::object({{"role", "assistant"}, {"tool_calls", Json::array({call})}})});
    const Json read = read_messages(Parameter("messages", messages));
    EXPECT_EQ(read[0]["tool_calls"][0]["function"]["arguments"].get<std::string>(), text);
    EXPECT_FALSE(dump(read).empty());
  }
}

TEST(ReadMessages, ReasoningHasOneName) {
  for (const char* name : {"reasoning", "reasoning_content", "reasoning_text"}) {
    const std::string text =
        std::string(R"([{"role":"assistant","content":"x",")") + name + R"(":"because"}])";
    EXPECT_EQ(read(text.c_str())[0]["reasoning_content"], "because") << name;
  }
}

TEST(ReadMessages, NamesThePartThatIsWrong) {
  EXPECT_EQ(refused_parameter("[]"), "messages");
  EXPECT_EQ(refused_parameter("{}"), "messages");
  EXPECT_EQ(refused_parameter("[1]"), "messages[0]");
  EXPECT_EQ(refused_parameter(R"([{"content":"x"}])"), "messages[0]");
  EXPECT_EQ(refused_parameter(R"([{"role":"king","content":"x"}])"), "messages[0].role");
  EXPECT_EQ(refused_parameter(R"([{"role":"user","content":7}])"), "messages[0].content");
  EXPECT_EQ(refused_parameter(R"([{"role":"user"}])"), "messages[0]");
  EXPECT_EQ(refused_parameter(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "messages[0].content[0]");
  EXPECT_EQ(refused_parameter(R"([{"role":"user","content":"x","mood":"y"}])"), "messages[0].mood");
  EXPECT_EQ(refused_parameter(R"([{"role":"user","content":[
                {"type":"image_url","image_url":{"url":"data:,"}}]}])"),
            "messages[0].content[0].image_url");
  EXPECT_EQ(refused_parameter(R"([{"role":"user","content":[{"type":"audio"}]}])"),
            "messages[0].content[0]");
}

}  // namespace
}  // namespace espalier::server::protocol
