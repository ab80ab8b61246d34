#include <iostream>
#include <memory>

#include "base/error.h"
#include "chat/response_parser.h"
#include "cli/input_text.h"
#include "cli/option_checks.h"
#include "cli/verbs.h"
#include "server/protocol/parameter.h"

namespace espalier::cli {
namespace {

using server::protocol::dump;
using server::protocol::Json;
using server::protocol::mapped;
using server::protocol::Parameter;
using server::protocol::ParameterRules;

struct ParseOptions {
  std::string dialect;
  bool lines = false;
  bool list = false;
  int chunk = 0;
};

struct ParseRequest {
  std::string raw;
  std::string tools;
  std::string prompt_end;
};

ParameterRules<ParseRequest> parse_rules() {
  return {mapped<ParseRequest>("raw", "",
                               [](const Parameter& parameter, ParseRequest& request) {
                                 request.raw = parameter.string();
                               }),
          mapped<ParseRequest>("tools", "",
                               [](const Parameter& parameter, ParseRequest& request) {
                                 parameter.elements();
                                 request.tools = dump(parameter.json());
                               }),
          mapped<ParseRequest>("prompt_ends_with", "",
                               [](const Parameter& parameter, ParseRequest& request) {
                                 request.prompt_end = parameter.string();
                               })};
}

/// The length of the first `characters` characters of UTF-8 text.
std::size_t prefix_length(std::string_view text, int characters) {
  std::size_t length = 0;
  while (length < text.size()) {
    const bool starts = (static_cast<unsigned char>(text[length]) & 0xC0) != 0x80;
    if (starts && characters-- == 0) break;
    ++length;
  }
  return length;
}

chat::ParsedMessage parse(const chat::Dialect& dialect, const ParseRequest& request, int chunk) {
  chat::ResponseParser parser({.dialect = &dialect,
                               .prompt_end = request.prompt_end,
                               .tools = chat::ToolSet(request.tools)});
  chat::ParsedMessage message;
  std::string_view rest = request.raw;
  while (!rest.empty()) {
    const std::size_t length = chunk > 0 ? prefix_length(rest, chunk) : rest.size();
    apply_events(parser.feed(rest.substr(0, length)), message);
    rest.remove_prefix(length);
  }
  apply_events(parser.finish(), message);
  return message;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json parse_line(const chat::Dialect& dialect, const std::string& input, int chunk) {
  static const ParameterRules<ParseRequest> rules = parse_rules();
  const Json body = server::protocol::parse_body(input);
  server::protocol::require_member(body, "raw");
  ParseRequest request;
  apply_rules(body, rules, request);
  const chat::ParsedMessage message = parse(dialect, request, chunk);
  Json calls = Json::array();
  for (const chat::ToolCall& call : message.tool_calls) {
    calls.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  return {{"content", text_or_null(message.content)},
          {"reasoning", text_or_null(message.reasoning)},
          {"tool_calls", std::move(calls)}};
}

void run_parse_tools(const ParseOptions& options) {
  if (options.list) {
    for (const chat::Dialect& dialect : chat::dialects()) {
      std::cout << dialect.name << "\t" << dialect.description << "\n";
    }
    return;
  }
  const chat::Dialect* dialect = chat::find_dialect(options.dialect);
  if (dialect == nullptr) {
    throw base::UsageError(options.dialect.empty()
                               ? "parse-tools needs --dialect NAME or --list"
                               : "there is no dialect '" + options.dialect +
                                     "'; espalier parse-tools --list names them");
  }
  if (!options.lines) {
    std::cout << dump(parse_line(*dialect, read_standard_input(), options.chunk)) << "\n";
    return;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.empty()) continue;
    Json output;
    try {
      output = parse_line(*dialect, line, options.chunk);
    } catch (const base::RequestError& error) {
      output = {{"error", error.what()}};
    }
    std::cout << dump(output) << "\n";
  }
}

}  // namespace

void add_parse_tools(CLI::App& app, Action& action) {
  auto options = std::make_shared<ParseOptions>();
  CLI::App* verb = app.add_subcommand(
      "parse-tools",
      "Take a model's raw answer apart into content, reasoning and tool calls.\n"
      "Standard input is a JSON object with raw and perhaps tools and prompt_ends_with.");
  verb->add_option("--dialect", options->dialect, "how the model writes calls (see --list)");
  verb->add_flag("--jsonl", options->lines,
                 "one object a line in, one result or {error} a line out");
  verb->add_option("--chunk", options->chunk,
                   "give the parser so many characters at a time; default all at once")
      ->check(whole_number(0));
  verb->add_flag("--list", options->list, "name the dialects");
  verb->footer(
      "Example:\n"
      "  echo '{\"raw\": \"<think>Hm.</think>Hi\"}' | espalier parse-tools --dialect "
      "hermes_qwen_json");
  verb->callback([options, &action] { action = [options] { run_parse_tools(*options); }; });
}

}  // namespace espalier::cli
