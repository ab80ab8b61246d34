#include "generation/session.h"

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace espalier::generation {
namespace {

using tokenizer::TokenId;

// The longest beginning of `bytes` that ends with a whole UTF-8 character.
std::size_t whole_characters(std::string_view bytes) {
  std::size_t end = 0;
  while (end < bytes.size()) {
    const auto lead = static_cast<unsigned char>(bytes[end]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (end + length > bytes.size()) {
      break;
    }
    end += length;
  }
  return end;
}

class PieceDecoder : public tokenizer::StreamDecoder {
 public:
  explicit PieceDecoder(const std::vector<std::string>& pieces) : pieces_(pieces) {}
  std::string push(TokenId id) override {
    pending_ += pieces_.at(id);
    const std::size_t end = whole_characters(pending_);
    std::string text = pending_.substr(0, end);
    pending_.erase(0, end);
    return text;
  }
  std::string finish() override {
    return std::exchange(pending_, "").empty() ? "" : "\xEF\xBF\xBD";
  }

 private:
  const std::vector<std::string>& pieces_;
  std::string pending_;
};

// A tokenizer whose ids are the places of `pieces`.
class PieceTokenizer : public tokenizer::Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::unique_ptr<tokenizer::StreamDecoder> stream(bool) const override {
    return std::make_unique<PieceDecoder>(pieces_);
  }
  std::vector<TokenId> encode(std::string_view, tokenizer::SpecialTokens) const override {
    throw std::logic_error("not used");
  }
  std::vector<TokenId> encode_prompt(std::string_view,
                                     const tokenizer::PromptEncoding&) const override {
    throw std::logic_error("not used");
  }
  std::string decode(std::span<const TokenId>, bool) const override {
    throw std::logic_error("not used");
  }
  std::string token_bytes(TokenId id) const override { return pieces_.at(id); }
  std::string token_name(TokenId id) const override { return pieces_.at(id); }
  std::optional<TokenId> token_id(std::string_view) const override { return {}; }
  bool is_special(TokenId) const override { return false; }
  int vocabulary_size() const override { return static_cast<int>(pieces_.size()); }
  std::optional<TokenId> bos() const override { return {}; }
  std::optional<TokenId> eos() const override { return {}; }

 private:
  std::vector<std::string> pieces_;
};

struct Outcome {
  std::string text;
  std::vector<std::string> events;
  FinishReason finish = FinishReason::none;
  std::string stop_string;
  int completion_tokens = 0;
  std::size_t tokens_handed_out = 0;
};

// Feeds all pieces, the last one with `last`; an end token of its own follows for `stop`.
Outcome assemble(const std::vector<std::string>& pieces, const std::vector<std::string>& stop,
                 FinishReason last = FinishReason::length) {
  const PieceTokenizer tokenizer(pieces);
  TextAssembler assembler(tokenizer, stop);
  Outcome outcome;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    TokenEvent event{.token = static_cast<TokenId>(i)};
    if (i + 1 == pieces.size()) {
      event.finish = last;
    }
    const TextEvent result = assembler.push(std::move(event));
    outcome.text += result.text;
    if (!result.text.empty()) {
      outcome.events.push_back(result.text);
      EXPECT_EQ(whole_characters(result.text), result.text.size());
    }
    outcome.tokens_handed_out += result.tokens.size();
    if (result.finish != FinishReason::none) {
      EXPECT_EQ(outcome.finish, FinishReason::none) << "finished twice";
      outcome.finish = result.finish;
      outcome.stop_string = result.stop_string;
    }
  }
  outcome.completion_tokens = assembler.completion_tokens();
  return outcome;
}

// All ways to cut `text` into pieces at up to two places, and byte by byte.
std::vector<std::vector<std::string>> cuts(const std::string& text) {
  std::vector<std::vector<std::string>> all;
  for (std::size_t first = 0; first < text.size(); ++first) {
    for (std::size_t second = first; second < text.size(); ++second) {
      std::vector<std::string> pieces;
      for (const auto& piece :
           {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
        if (!piece.empty()) {
          pieces.push_back(piece);
        }
      }
      all.push_back(pieces);
    }
  }
  std::vector<std::string> bytes;
  for (const char byte : text) {
    bytes.emplace_back(1, byte);
  }
  all.push_back(bytes);
  return all;
}

TEST(TextAssembler, PassesTextOnAsItComes) {
  const Outcome outcome = assemble({"one", " two", " three"}, {});
  EXPECT_EQ(outcome.events, (std::vector<std::string>{"one", " two", " three"}));
  EXPECT_EQ(outcome.finish, FinishReason::length);
  EXPECT_EQ(outcome.completion_tokens, 3);
  EXPECT_EQ(outcome.tokens_handed_out, 3U);
}

struct StopCase {
  std::string text;
  std::vector<std::string> stop;
  std::string expected;
  std::string matched;
};

TEST(TextAssembler, FindsStopStringsCutAnywhere) {
  const std::vector<StopCase> cases{
      {"say STOP now", {"STOP"}, "say ", "STOP"}, {"STOP", {"STOP"}, "", "STOP"},
      {"a SSTOP", {"STOP"}, "a S", "STOP"},       {"ababac!", {"abac"}, "ab", "abac"},
      {"tail ST", {"STOP"}, "tail ST", ""},       {"nothing here", {"STOP"}, "nothing here", ""},
      {"x abcd y", {"abcd", "bc"}, "x a", "bc"},  {"x abcd y", {"cd", "abcd"}, "x ", "abcd"},
      {"x ab y", {"abc", "ab"}, "x ", "ab"},      {"first\n\nsecond", {"\n\n"}, "first", "\n\n"},
      {"größer→Ende", {"→"}, "größer", "→"},      {"größer→Ende", {"ßer→E"}, "grö", "ßer→E"},
      {"äöüß", {"öX", "üY"}, "äöüß", ""},         {"caf\xC3\xA9", {"e"}, "caf\xC3\xA9", ""},
  };
  for (const StopCase& test : cases) {
    for (const auto& pieces : cuts(test.text)) {
      const Outcome outcome = assemble(pieces, test.stop);
      EXPECT_EQ(outcome.text, test.expected) << testing::PrintToString(pieces);
      EXPECT_EQ(outcome.stop_string, test.matched) << testing::PrintToString(pieces);
      EXPECT_EQ(outcome.finish, test.matched.empty() ? FinishReason::length : FinishReason::stop);
      EXPECT_EQ(outcome.tokens_handed_out, static_cast<std::size_t>(outcome.completion_tokens));
    }
  }
}

TEST(TextAssembler, HoldsBackOnlyWhatMayBecomeAStopString) {
  const Outcome outcome = assemble({"ab", "cSTO", "x", "yS", "z"}, {"STOP"});
  EXPECT_EQ(outcome.events, (std::vector<std::string>{"ab", "c", "STOx", "y", "Sz"}));
}

TEST(TextAssembler, TokensComeWithTheirText) {
  const PieceTokenizer tokenizer({"a", "S", "T", "x"});
  TextAssembler assembler(tokenizer, {"STOP"});
  EXPECT_EQ(assembler.push({.token = 0}).tokens.size(), 1U);
  EXPECT_EQ(assembler.push({.token = 1}).tokens.size(), 0U);
  EXPECT_EQ(assembler.push({.token = 2}).tokens.size(), 0U);
  const TextEvent event = assembler.push({.token = 3, .logprob = -2});
  ASSERT_EQ(event.tokens.size(), 3U);
  EXPECT_EQ(event.tokens[0].token, 1);
  EXPECT_EQ(event.tokens[2].logprob, -2);
}

TEST(TextAssembler, AnEndTokenCountsButIsNoText) {
  const Outcome outcome = assemble({"hello", "<end>"}, {}, FinishReason::stop);
  EXPECT_EQ(outcome.text, "hello");
  EXPECT_EQ(outcome.completion_tokens, 2);
  EXPECT_EQ(outcome.finish, FinishReason::stop);
  EXPECT_EQ(outcome.stop_string, "");
}

TEST(TextAssembler, EndReleasesWhatWasHeldBack) {
  EXPECT_EQ(assemble({"hello S", "<end>"}, {"STOP"}, FinishReason::stop).text, "hello S");
  EXPECT_EQ(assemble({"hello \xE2\x86"}, {}).text, "hello \xEF\xBF\xBD");
}

TEST(TextAssembler, CancellationAndErrorsPassThrough) {
  const PieceTokenizer tokenizer({"aS"});
  TextAssembler cancelled(tokenizer, {"STOP"});
  EXPECT_EQ(cancelled.push({.token = 0}).text, "a");
  const TextEvent end = cancelled.push({.finish = FinishReason::cancelled});
  EXPECT_EQ(end.finish, FinishReason::cancelled);
  EXPECT_EQ(end.text, "S");
  TextAssembler failed(tokenizer, {});
  EXPECT_EQ(failed.push({.finish = FinishReason::error, .error = "why"}).error, "why");
}

TEST(TextAssembler, IgnoresWhatFollowsTheEnd) {
  const PieceTokenizer tokenizer({"STOP", "more"});
  TextAssembler assembler(tokenizer, {"STOP"});
  EXPECT_EQ(assembler.push({.token = 0}).finish, FinishReason::stop);
  const TextEvent after = assembler.push({.token = 1, .finish = FinishReason::length});
  EXPECT_EQ(after.text, "");
  EXPECT_EQ(after.finish, FinishReason::none);
  EXPECT_EQ(assembler.completion_tokens(), 1);
}

}  // namespace
}  // namespace espalier::generation
