// Any bytes as a chat template: a message that says what is wrong, or a rendering within bounds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <espalier_text.h>

namespace {

constexpr std::string_view messages = R"([
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": [{"type": "text", "text": "2 < 3 & 'é'"}]},
  {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"items": [1, 2.5]}}}]},
  {"role": "tool", "content": "{}", "tool_call_id": "1"}])";
constexpr std::string_view tools = R"([{"type": "function", "function": {"name": "f",
  "description": "x", "parameters": {"type": "object", "properties": {"items": {}}}}}])";

espalier_text_bytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// A panic inside the library is a failure too, but a bug.
void check_error() {
  const auto message = espalier_text_last_error();
  const std::string_view text(reinterpret_cast<const char*>(message.data), message.size);
  if (text.find("internal error") != std::string_view::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto* compiled = espalier_text_template_compile({data, size});
  if (compiled == nullptr) {
    check_error();
    return 0;
  }
  espalier_text_render_input input{};
  input.messages = as_bytes(messages);
  input.tools = as_bytes(tools);
  input.add_generation_prompt = 1;
  espalier_text_buffer text{};
  if (espalier_text_template_render(compiled, &input, &text) == ESPALIER_TEXT_OK) {
    espalier_text_buffer_free(text);
  } else {
    check_error();
  }
  espalier_text_template_free(compiled);
  return 0;
}
