// Any bytes as the body of each request of the OpenAI dialect: read, or refused with a RequestError
// 4xx. The first byte picks the endpoint.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "server/openai/parameters.h"
#include "server/openai/text_parameters.h"

namespace {

namespace openai = espalier::server::openai;

void parse(std::uint8_t endpoint, std::string_view text) {
  const espalier::generation::SamplingParameters defaults;
  const auto body = espalier::server::protocol::parse_body(text);
  switch (endpoint % 5) {
    case 0:
      static_cast<void>(openai::parse_chat(body, defaults));
      break;
    case 1:
      static_cast<void>(openai::parse_completion(body, defaults));
      break;
    case 2:
      static_cast<void>(openai::parse_template_request(body));
      break;
    case 3:
      static_cast<void>(openai::parse_tokenize(body));
      break;
    default:
      static_cast<void>(openai::parse_detokenize(body));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    parse(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const espalier::base::RequestError& error) {
    if (error.status() < 400 || error.status() > 499) std::abort();
  }
  return 0;
}
