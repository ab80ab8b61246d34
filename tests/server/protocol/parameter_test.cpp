#include "server/protocol/parameter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier::server::protocol {
namespace {

using testing::HasSubstr;

template <typename Call>
base::RequestError refusal(Call call) {
  try {
    call();
  } catch (const base::RequestError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return {0, "", ""};
}

TEST(ParseBody, SaysWhereTheJsonIsBad) {
  const auto error = refusal([] { parse_body("{\n  \"a\": 1,\n  b\n}"); });
  EXPECT_EQ(error.status(), 400);
  EXPECT_EQ(error.code(), "invalid_json");
  EXPECT_THAT(error.what(), HasSubstr("byte 15 (line 3, column 3)"));
}

TEST(ParseBody, WantsAnObject) {
  for (const char* text : {"", "[]", "1", "null", "\"a\"", "nul", "{} {}"}) {
    EXPECT_EQ(refusal([&] { parse_body(text); }).code(), "invalid_json") << text;
  }
}

TEST(ParseBody, DoesNotEndAtAZeroByte) {
  const std::string text("{}\0{", 4);
  EXPECT_THAT(refusal([&] { parse_body(text); }).what(), HasSubstr("byte 3"));
}

TEST(ParseBody, RefusesDeepNesting) {
  const std::string deep = "{\"a\":" + std::string(1'000'000, '[');
  EXPECT_THAT(refusal([&] { parse_body(deep); }).what(), HasSubstr("nested"));
  EXPECT_NO_THROW(parse_body(R"({"a":")" + std::string(1000, '[') + R"("})"));
}

TEST(ParseBody, RefusesANameThatIsThereTwice) {
  const auto error = refusal([] { parse_body(R"({"a":1,"b":{"c":1},"c":2,"a":1})"); });
  EXPECT_EQ(error.code(), "invalid_json");
  EXPECT_THAT(error.what(), HasSubstr("'a' twice"));
}

TEST(ParseBody, KeepsEveryValueAndTheOrder) {
  const std::string text =
      R"({"z":[1,-2,2.5,true,false,null,"x",[],{}],"a":{"c":{"d":[[1],[2]]},"b":"\u00e9"},"m":1})";
  EXPECT_EQ(parse_body(text), Json::parse(text));
  EXPECT_EQ(parse_body(text).dump(), Json::parse(text).dump());
}

TEST(ParseBody, TakesATimeThatGrowsWithTheText) {
  std::string text = "{\"logit_bias\":{";
  // Half a minute and more for who compares each with all others.
  constexpr std::size_t members = 200'000;
  for (std::size_t i = 0; i < members; ++i) {
    text.append(1, '"').append(std::to_string(i)).append("\":0,");
  }
  text.back() = '}';
  EXPECT_EQ(parse_body(text + "}")["logit_bias"].size(), members);
  // What is nested deeper is copied member by member.
  EXPECT_THAT(refusal([&] { parse_body("{\"tools\":[" + text + "}]}"); }).what(),
              HasSubstr("members"));
}

TEST(Parameter, NamesOfClientsAreShownShort) {
  const Json number = 1;
  const auto error = refusal([&] { (void)Parameter(std::string(10'000, 'k'), number).string(); });
  EXPECT_LT(std::string(error.what()).size(), 200U);
  EXPECT_EQ(shown(std::string("a\0b\n", 4)), "a b ");
  EXPECT_EQ(shown(std::string(99, 'x') + "éé"), std::string(99, 'x') + "…");
}

TEST(ParseBody, RefusesNumbersOutOfRange) {
  EXPECT_EQ(refusal([] { parse_body(R"({"a":1e999})"); }).code(), "invalid_json");
}

TEST(ParseBody, RefusesBytesThatAreNoText) {
  EXPECT_EQ(refusal([] { parse_body("{\"a\":\"\xff\"}"); }).code(), "invalid_json");
}

TEST(Parameter, RefusesOtherTypesByName) {
  const Json text = "1";
  const Json number = 1;
  const Json fraction = 1.5;
  const auto error = refusal([&] { (void)Parameter("top_p", text).number(); });
  EXPECT_EQ(error.code(), "invalid_type");
  EXPECT_EQ(error.param(), "top_p");
  EXPECT_STREQ(error.what(), "'top_p' must be a number, not string.");
  EXPECT_EQ(refusal([&] { (void)Parameter("n", fraction).integer(0, 9); }).code(), "invalid_type");
  EXPECT_EQ(refusal([&] { (void)Parameter("s", number).string(); }).code(), "invalid_type");
  EXPECT_EQ(refusal([&] { (void)Parameter("b", number).boolean(); }).code(), "invalid_type");
  EXPECT_EQ(refusal([&] { (void)Parameter("a", number).elements(); }).code(), "invalid_type");
  EXPECT_EQ(refusal([&] { (void)Parameter("o", number).members(); }).code(), "invalid_type");
}

TEST(Parameter, ReadsIntegersWithinBounds) {
  const auto read = [](const Json& value) { return Parameter("n", value).integer(-1, 128); };
  EXPECT_EQ(read(128), 128);
  EXPECT_EQ(read(-1), -1);
  EXPECT_EQ(read(5.0), 5);
  for (const Json& value : {Json(129), Json(-2), Json(18446744073709551615ULL), Json(1e300)}) {
    EXPECT_EQ(refusal([&] { read(value); }).code(), "invalid_value") << value;
  }
}

TEST(Parameter, NamesElementsAndMembers) {
  const Json array = {1, 2};
  const Json object = {{"a", 1}, {"b", nullptr}};
  EXPECT_EQ(Parameter("stop", array).elements()[1].name(), "stop[1]");
  const auto members = Parameter("o", object).members();
  ASSERT_EQ(members.size(), 1U);
  EXPECT_EQ(members[0].second.name(), "o.a");
}

struct Target {
  bool flag = false;
};

const ParameterRules<Target> rules = {
    mapped<Target>("flag", "a flag",
                   [](const Parameter& value, Target& target) { target.flag = value.boolean(); }),
    refused<Target>("tools", "not there", {Json::array()}), accepted<Target>("user", "a name")};

TEST(ApplyRules, TakesEachParameterByItsRule) {
  Target target;
  apply_rules(Json{{"flag", true}, {"tools", Json::array()}, {"user", 7}}, rules, target);
  EXPECT_TRUE(target.flag);
}

TEST(ApplyRules, NullIsAbsent) {
  Target target;
  apply_rules(Json{{"flag", nullptr}, {"tools", nullptr}}, rules, target);
  EXPECT_FALSE(target.flag);
}

TEST(ApplyRules, RefusesWhatItDoesNotKnow) {
  Target target;
  const auto unknown = refusal([&] { apply_rules(Json{{"flagg", true}}, rules, target); });
  EXPECT_EQ(unknown.code(), "unknown_parameter");
  EXPECT_EQ(unknown.param(), "flagg");
  const auto unsupported = refusal([&] { apply_rules(Json{{"tools", {1}}}, rules, target); });
  EXPECT_EQ(unsupported.code(), "unsupported_parameter");
  EXPECT_EQ(unsupported.param(), "tools");
}

}  // namespace
}  // namespace espalier::server::protocol
