#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "chat/template.h"
#include "cli/model_options.h"
#include "cli/standard_input.h"
#include "cli/verbs.h"
#include "generation/bundle.h"

namespace espalier::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RenderOptions {
  std::string model;
  std::string template_file;
  bool jsonl = false;
};

struct TemplateSource {
  std::shared_ptr<const chat::ChatTemplate> chat_template;
  std::map<std::string, std::string> special_tokens;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) {
    throw base::LoadError("The template " + path + " cannot be read.");
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TemplateSource load_template(const RenderOptions& options) {
  if (!options.template_file.empty()) {
    return {chat::compile_template({{"default", read_file(options.template_file)}},
                                   options.template_file),
            {}};
  }
  const auto path = hub::resolve(options.model).path;
  const auto bundle = generation::load_text_bundle(path);
  if (bundle.template_variants.empty()) {
    throw base::LoadError("The model " + options.model + " has no chat template.");
  }
  return {chat::compile_template(bundle.template_variants, path.string()), bundle.special_tokens};
}

/// `2026-03-05T14:07:09`, taken as local time as the templates' clock shows it.
std::chrono::system_clock::time_point parse_time(const std::string& text) {
  std::tm time = {};
  std::istringstream stream(text);
  stream >> std::get_time(&time, "%Y-%m-%dT%H:%M:%S");
  if (stream.fail()) {
    throw std::runtime_error("'now' is '" + text + "', not a time like 2026-03-05T14:07:09.");
  }
  time.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&time));
}

template <typename Value>
Value take(const std::string& key, const Json& value) {
  try {
    return value.get<Value>();
  } catch (const nlohmann::json::type_error&) {
    throw std::runtime_error("'" + key + "' has the wrong type: " + value.type_name() + ".");
  }
}

chat::RenderRequest read_request(const Json& input, const TemplateSource& source) {
  if (!input.is_object()) throw std::runtime_error("The request is not a JSON object.");
  chat::RenderRequest request;
  request.special_tokens = source.special_tokens;
  request.now = std::chrono::system_clock::now();
  request.add_generation_prompt = false;
  for (const auto& [key, value] : input.items()) {
    if (value.is_null()) continue;
    if (key == "messages") {
      request.messages_json = value.dump();
    } else if (key == "tools") {
      request.tools_json = value.dump();
    } else if (key == "documents") {
      request.documents_json = value.dump();
    } else if (key == "chat_template_kwargs" || key == "kwargs") {
      request.kwargs_json = value.dump();
    } else if (key == "add_generation_prompt") {
      request.add_generation_prompt = take<bool>(key, value);
    } else if (key == "continue_final_message") {
      request.continue_final_message = take<bool>(key, value);
    } else if (key == "template") {
      request.template_name = take<std::string>(key, value);
    } else if (key == "now") {
      request.now = parse_time(take<std::string>(key, value));
    } else if (key == "special_tokens") {
      for (const auto& [name, token] : value.items()) {
        request.special_tokens[name] = take<std::string>(name, token);
      }
    } else {
      throw std::runtime_error("The request has an unknown member '" + key + "'.");
    }
  }
  if (request.messages_json.empty()) throw std::runtime_error("The request has no 'messages'.");
  return request;
}

int render(const RenderOptions& options) {
  const TemplateSource source = load_template(options);
  if (options.jsonl) {
    answer_lines("prompt", [&](const Json& input) {
      return source.chat_template->render(read_request(input, source));
    });
    return 0;
  }
  const Json input = parse_json(read_standard_input(), "Standard input");
  std::cout << source.chat_template->render(read_request(input, source)) << std::flush;
  return 0;
}

}  // namespace

void add_render(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "render",
      "A chat request to its prompt text: JSON on standard input with messages, and optionally "
      "tools,\ndocuments, add_generation_prompt, continue_final_message, chat_template_kwargs,\n"
      "special_tokens, template (a variant's name) and now (an ISO time).");
  const auto options = std::make_shared<RenderOptions>();
  auto* source = verb->add_option_group("source", "Where the template comes from");
  source->add_option("--model,-m", options->model,
                     "Folder, .gguf file, repo id in the cache, or alias");
  source->add_option("--template", options->template_file, "A Jinja file");
  source->require_option(1);
  verb->add_flag("--jsonl", options->jsonl,
                 "One request a line in, one {\"prompt\"} or {\"error\"} a line out");
  verb->callback([options, &action] { action = [options] { return render(*options); }; });
}

}  // namespace espalier::cli
