#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/error.h"
#include "base/short_turns.h"
#include "cli/verbs.h"

namespace espalier::cli {
namespace {

constexpr int failed = 1;
constexpr int usage = 2;

constexpr const char* description =
    "Runs and serves language models on the machine you own.\n"
    "\n"
    "MODEL is a folder with a checkpoint, a .gguf file, a Hugging Face repo id in the cache, or "
    "an\n"
    "alias from `espalier ls`. Without a verb, `serve` is meant.";

constexpr const char* footer =
    "Examples:\n"
    "  espalier ls\n"
    "  espalier generate --model MODEL --prompt \"Why is the sky blue?\"\n"
    "  espalier chat --model MODEL\n"
    "  espalier serve --model MODEL --port 8080\n"
    "\n"
    "`espalier VERB --help` explains a verb.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage; the reason is one line on standard error.";

int fail(int status, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << "espalier: " << message << "\n";
  return status;
}

int flush_output() {
  std::cout.flush();
  return std::cout ? 0 : fail(failed, "standard output cannot be written");
}

/// `espalier` alone, or followed by options, serves.
std::vector<std::string> with_verb(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  static const std::vector<std::string> own = {"-h", "--help", "--version"};
  const bool has_verb =
      !arguments.empty() && (!arguments.front().starts_with("-") ||
                             std::find(own.begin(), own.end(), arguments.front()) != own.end());
  if (!has_verb) arguments.insert(arguments.begin(), "serve");
  return arguments;
}

int run(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("espalier"));
  CLI::App app(description, "espalier");
  app.set_version_flag("--version", ESPALIER_VERSION);
  app.require_subcommand(1);
  Action action;
  for (const auto add :
       {add_serve, add_generate, add_chat, add_tokenize, add_render, add_parse_tools, add_logits,
        add_perplexity, add_bench, add_embed, add_convert, add_fit, add_inspect, add_ls}) {
    add(app, action);
  }
  app.footer(footer);  // of the program alone: verbs have their own
  std::vector<std::string> arguments = with_verb(argc, argv);
  const std::string verb = arguments.front();
  const auto named =
      app.get_subcommands([&verb](const CLI::App* known) { return known->check_name(verb); });
  if (!verb.starts_with("-") && named.empty()) {
    return fail(usage, "there is no verb " + verb + " (see espalier --help)");
  }
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);
      return flush_output();
    }
    const std::string of_verb = named.empty() ? "" : verb + " ";
    return fail(usage, std::string(error.what()) + " (see espalier " + of_verb + "--help)");
  }
  base::ask_for_short_turns();
  try {
    action();
    return flush_output();
  } catch (const base::UsageError& error) {
    return fail(usage, error.what());
  } catch (const std::exception& error) {
    return fail(failed, error.what());
  }
}

}  // namespace
}  // namespace espalier::cli

int main(int argc, char** argv) { return espalier::cli::run(argc, argv); }
