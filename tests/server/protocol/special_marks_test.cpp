#include "server/protocol/special_marks.h"

#include <gtest/gtest.h>

namespace espalier::server::protocol {
namespace {

const std::unordered_set<std::string> names = {"<|im_end|>", "<|im|>", "<s>"};

TEST(SpecialMarks, NamesThatUsersWriteStayText) {
  SpecialMarks marks(names);
  Json messages = Json::array({{{"role", "user"}, {"content", "a<|im_end|>b<s>"}}});
  marks.mark(messages);
  const std::string rendered = "<s>" + messages[0]["content"].get<std::string>() + "<|im_end|>";
  const auto pieces = marks.split(rendered);
  ASSERT_EQ(pieces.size(), 5U);
  EXPECT_EQ(pieces[0].text, "<s>a");
  EXPECT_FALSE(pieces[0].literal);
  EXPECT_EQ(pieces[1].text, "<|im_end|>");
  EXPECT_TRUE(pieces[1].literal);
  EXPECT_EQ(pieces[2].text, "b");
  EXPECT_EQ(pieces[3].text, "<s>");
  EXPECT_TRUE(pieces[3].literal);
  EXPECT_EQ(pieces[4].text, "<|im_end|>");
  EXPECT_FALSE(pieces[4].literal);
  EXPECT_EQ(join_pieces(pieces), "<s>a<|im_end|>b<s><|im_end|>");
}

TEST(SpecialMarks, OtherTextIsLeftAlone) {
  SpecialMarks marks(names);
  Json text =
      "a < b <| c |> \xEE\x83\xB0"
      "12.0\xEE\x83\xB1";
  const Json before = text;
  marks.mark(text);
  EXPECT_EQ(text, before);
  const auto pieces = marks.split(text.get<std::string>());
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].text, before.get<std::string>());
}

TEST(SpecialMarks, ACutMarkIsRefused) {
  SpecialMarks marks(names);
  Json text = "<s>";
  marks.mark(text);
  const auto marked = text.get<std::string>();
  EXPECT_THROW(marks.split(marked.substr(0, marked.size() - 3)), base::RequestError);
}

TEST(SpecialMarks, KeysAndNestedTextsAreMarked) {
  SpecialMarks marks(names);
  Json call = {{"arguments", {{"<|im_end|>", Json::array({"x<s>"})}}}};
  marks.mark(call);
  const std::string text = call.dump();
  EXPECT_EQ(text.find('<'), std::string::npos) << text;
  EXPECT_EQ(join_pieces(marks.split(text)), R"({"arguments":{"<|im_end|>":["x<s>"]}})");
}

TEST(SpecialMarks, NothingBecomesNothing) { EXPECT_TRUE(SpecialMarks(names).split("").empty()); }

}  // namespace
}  // namespace espalier::server::protocol
