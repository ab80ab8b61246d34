#include <chrono>
#include <ctime>
#include <iostream>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "chat/template.h"
#include "cli/input_text.h"
#include "cli/model_options.h"
#include "cli/verbs.h"
#include "generation/bundle.h"
#include "server/protocol/parameter.h"

namespace espalier::cli {
namespace {

using chat::RenderRequest;
using server::protocol::dump;
using server::protocol::Json;
using server::protocol::mapped;
using server::protocol::Parameter;
using server::protocol::ParameterRules;

struct RenderOptions {
  std::string model;
  std::string template_file;
  bool lines = false;
};

/// A template with the special tokens it knows.
struct Template {
  std::shared_ptr<const chat::ChatTemplate> compiled;
  std::map<std::string, std::string> special_tokens;
};

Template load_template(const RenderOptions& options) {
  if (!options.template_file.empty()) {
    const std::string source =
        require_utf8(read_file(options.template_file), options.template_file);
    return {chat::compile_template({{"default", source}}, options.template_file), {}};
  }
  generation::TextBundle bundle = generation::load_text_bundle(text_path(options.model));
  if (bundle.template_variants.empty()) {
    throw base::LoadError(options.model + " has no chat template");
  }
  return {chat::compile_template(bundle.template_variants, options.model),
          std::move(bundle.special_tokens)};
}

/// ISO 8601 without a zone, taken as local time, which is what templates print.
void read_now(const Parameter& parameter, RenderRequest& request) {
  std::tm time{};
  std::string text = parameter.string();
  std::istringstream input(text);
  input >> std::get_time(&time, text.find('T') != std::string::npos ? "%Y-%m-%dT%H:%M:%S"
                                                                    : "%Y-%m-%d %H:%M:%S");
  if (input.fail()) parameter.refuse("must be a time as in 2026-03-05T14:07:09");
  time.tm_isdst = -1;
  request.now = std::chrono::system_clock::from_time_t(std::mktime(&time));
}

void read_special_tokens(const Parameter& parameter, RenderRequest& request) {
  for (const auto& [key, value] : parameter.members()) {
    // tokenizer_config.json writes a token as a string or as {"content": …}.
    request.special_tokens[key] =
        value.json().is_object() && value.find("content") != nullptr
            ? Parameter(value.name() + ".content", *value.find("content")).string()
            : value.string();
  }
}

ParameterRules<RenderRequest> render_rules() {
  const auto text = [](const char* name, std::string RenderRequest::*field) {
    return mapped<RenderRequest>(name, "",
                                 [field](const Parameter& parameter, RenderRequest& request) {
                                   request.*field = dump(parameter.json());
                                 });
  };
  const auto flag = [](const char* name, bool RenderRequest::*field) {
    return mapped<RenderRequest>(name, "",
                                 [field](const Parameter& parameter, RenderRequest& request) {
                                   request.*field = parameter.boolean();
                                 });
  };
  return {text("messages", &RenderRequest::messages_json),
          text("tools", &RenderRequest::tools_json),
          text("documents", &RenderRequest::documents_json),
          text("chat_template_kwargs", &RenderRequest::kwargs_json),
          flag("add_generation_prompt", &RenderRequest::add_generation_prompt),
          flag("continue_final_message", &RenderRequest::continue_final_message),
          mapped<RenderRequest>("special_tokens", "", read_special_tokens),
          mapped<RenderRequest>("template", "",
                                [](const Parameter& parameter, RenderRequest& request) {
                                  request.template_name = parameter.string();
                                }),
          mapped<RenderRequest>("now", "", read_now)};
}

std::string render(const Template& chat_template, const std::string& input) {
  static const ParameterRules<RenderRequest> rules = render_rules();
  const Json body = server::protocol::parse_body(input);
  server::protocol::require_member(body, "messages");
  RenderRequest request;
  request.special_tokens = chat_template.special_tokens;
  request.now = std::chrono::system_clock::now();
  apply_rules(body, rules, request);
  if (request.continue_final_message && !body.contains("add_generation_prompt")) {
    request.add_generation_prompt = false;
  }
  return chat_template.compiled->render(request);
}

void render_lines(const Template& chat_template) {
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.empty()) continue;
    Json output;
    try {
      output = {{"prompt", render(chat_template, line)}};
    } catch (const base::RequestError& error) {
      output = {{"error", error.what()}};
    }
    std::cout << dump(output) << "\n";
  }
}

void run_render(const RenderOptions& options) {
  if (options.model.empty() == options.template_file.empty()) {
    throw base::UsageError("render needs either --model or --template");
  }
  const Template chat_template = load_template(options);
  if (options.lines) {
    render_lines(chat_template);
  } else {
    std::cout << render(chat_template, read_standard_input());
  }
}

}  // namespace

void add_render(CLI::App& app, Action& action) {
  auto options = std::make_shared<RenderOptions>();
  CLI::App* verb = app.add_subcommand(
      "render",
      "Turn a chat request on standard input into the prompt text that the model is given.\n"
      "The request is a JSON object with messages and perhaps tools, documents,\n"
      "add_generation_prompt, continue_final_message, chat_template_kwargs, special_tokens,\n"
      "template (a template's name) and now (an ISO time).");
  verb->add_option("--model", options->model, "folder, .gguf file, repo id or alias");
  verb->add_option("--template", options->template_file, "a file with a Jinja template");
  verb->add_flag("--jsonl", options->lines,
                 "one request a line in, one {prompt} or {error} a line out");
  verb->footer(
      "Example:\n"
      "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | espalier render "
      "--model MODEL");
  verb->callback([options, &action] { action = [options] { run_render(*options); }; });
}

}  // namespace espalier::cli
