// Any bytes as a tokenizer file, the first one saying of which kind: a message that says what is
// wrong, or a tokenizer whose every function can be called.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <espalier_text.h>

namespace {

constexpr std::array<std::string_view, 4> names = {"tokenizer.json", "tokenizer.model",
                                                   "tekken.json", "qwen.tiktoken"};
constexpr std::string_view config = R"({"add_bos_token": true, "bos_token": "<s>",
  "added_tokens_decoder": {"3": {"content": "<s>", "special": true}}})";
constexpr std::string_view sample = " Say <s>\xE2\x96\x81x  12 \xF0\x9F\x98\x80\n\n<0x0A>";

espalier_text_bytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

espalier_text_tokenizer* open(std::string_view name, espalier_text_bytes content) {
  if (name == names[0]) return espalier_text_tokenizer_from_json(content);
  return espalier_text_tokenizer_from_model_file(as_bytes(name), content, as_bytes(config));
}

void use(const espalier_text_tokenizer* tokenizer) {
  const espalier_text_span literal{5, 8};
  for (const auto special : {ESPALIER_TEXT_RECOGNISE, ESPALIER_TEXT_ADD, ESPALIER_TEXT_LITERAL}) {
    espalier_text_encode_request request{};
    request.special = special;
    request.literal = &literal;
    request.literal_count = special == ESPALIER_TEXT_RECOGNISE ? 1 : 0;
    espalier_text_ids ids{};
    if (espalier_text_encode(tokenizer, as_bytes(sample), &request, &ids) != ESPALIER_TEXT_OK) {
      continue;
    }
    espalier_text_buffer text{};
    if (espalier_text_decode(tokenizer, ids.data, ids.size, 0, &text) == ESPALIER_TEXT_OK) {
      espalier_text_buffer_free(text);
    }
    espalier_text_ids_free(ids);
  }
  const std::uint32_t size = espalier_text_vocabulary_size(tokenizer);
  for (std::uint32_t id = 0; id < size && id < 256; ++id) {
    espalier_text_buffer bytes{};
    if (espalier_text_token_bytes(tokenizer, id, &bytes) == ESPALIER_TEXT_OK) {
      espalier_text_buffer_free(bytes);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  auto* tokenizer = open(names[data[0] % names.size()], {data + 1, size - 1});
  if (tokenizer == nullptr) return 0;
  use(tokenizer);
  espalier_text_tokenizer_free(tokenizer);
  return 0;
}
