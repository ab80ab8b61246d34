// Vocabularies as GGUF files hold them, against the results of the same family's tokenizer.json.

#include <fstream>

#include <gtest/gtest.h>

#include "generation/bundle.h"
#include "support/text_cases.h"

namespace espalier::generation {
namespace {

using tokenizer::SpecialTokens;
using Ids = std::vector<tokenizer::TokenId>;

std::vector<std::filesystem::path> gguf_families() {
  std::vector<std::filesystem::path> families;
  for (const auto& folder : tests::text_cases("tokenizers")) {
    if (std::filesystem::exists(folder / "vocab.gguf.xz")) families.push_back(folder);
  }
  return families;
}

class GgufVocabularies : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(GgufVocabularies, EncodeAndDecodeAsTokenizerJson) {
  const auto cases = tests::read_json(GetParam() / "cases.json");
  tests::ScratchFolder folder;
  const auto path = folder.path() / "vocab.gguf";
  tests::unpack(GetParam() / "vocab.gguf.xz", path);
  const auto bundle = load_text_bundle(path);
  const bool gemma = GetParam().filename() == "gemma3";
  for (const auto& entry : cases["encode"]) {
    // The score-based form of this vocabulary gives other ids for a literal U+2581, says the
    // fixture's own note.
    if (gemma && entry["name"] == "sp_meta") continue;
    SCOPED_TRACE(entry["name"].dump());
    const auto ids = entry["ids"].get<Ids>();
    EXPECT_EQ(bundle.tokenizer->encode(entry["text"].get<std::string>(), SpecialTokens::recognise),
              ids);
    EXPECT_EQ(bundle.tokenizer->decode(ids, false), entry["decode"].get<std::string>());
  }
  for (const auto& entry : cases["decode"]) {
    SCOPED_TRACE(entry["name"].dump());
    // This file lacks <image_soft_token> and flags other tokens as control tokens.
    if (gemma && entry["name"] == "specials_mixed") continue;
    const auto ids = entry["ids"].get<Ids>();
    EXPECT_EQ(bundle.tokenizer->decode(ids, false), entry["decode"].get<std::string>());
    if (gemma) continue;
    EXPECT_EQ(bundle.tokenizer->decode(ids, true), entry["decode_skip_special"].get<std::string>());
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GgufVocabularies);
INSTANTIATE_TEST_SUITE_P(Text, GgufVocabularies, testing::ValuesIn(gguf_families()),
                         [](const auto& info) { return tests::case_name(info.param); });

TEST(Bundle, OfTheDefaultModel) {
  const auto model = tests::test_model();
  if (!model) GTEST_SKIP() << "the default model is absent";
  const auto bundle = load_text_bundle(*model);
  EXPECT_EQ(bundle.special_tokens.at("eos_token"), "<|im_end|>");
  EXPECT_EQ(bundle.template_variants.count("default"), 1);
  EXPECT_EQ(bundle.end_tokens, (Ids{2, 0}));
  EXPECT_EQ(bundle.tokenizer->encode("Hello, world!", SpecialTokens::add),
            (Ids{19556, 28, 905, 17}));
}

TEST(Bundle, OfAFolder) {
  const auto shared = tests::shared_folder();
  if (!shared) GTEST_SKIP() << "../shared is absent: no reference tokenizers";
  const auto family = *shared / "fixtures/text/tokenizers/qwen3";
  const auto folder = tests::tokenizer_folder(family);
  std::filesystem::copy_file(family / "template.jinja", folder->path() / "chat_template.jinja");
  std::ofstream(folder->path() / "generation_config.json")
      << R"({"eos_token_id": [151645, 151643], "temperature": 0.6, "top_k": 20, "top_p": 0.95})";
  const auto bundle = load_text_bundle(folder->path());
  EXPECT_EQ(bundle.end_tokens, (Ids{151645, 151643}));
  EXPECT_EQ(bundle.sampling_defaults.top_k, 20);
  EXPECT_FLOAT_EQ(bundle.sampling_defaults.temperature, 0.6F);
  EXPECT_EQ(bundle.special_tokens.at("eos_token"), "<|im_end|>");
  EXPECT_EQ(bundle.tokenizer->eos(), 151645);
  EXPECT_NE(bundle.template_variants.at("default").find("tool_call"), std::string::npos);
}

}  // namespace
}  // namespace espalier::generation
