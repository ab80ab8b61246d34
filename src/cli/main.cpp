#include <csignal>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/verbs.h"

namespace espalier::cli {
namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;

constexpr const char* description =
    "Espalier runs, serves and measures language models on this machine.\n"
    "MODEL is a folder with a checkpoint, a .gguf file, a Hugging Face repo id in the cache, or "
    "an\n"
    "alias from 'espalier ls'. Without a verb, espalier serves.";

/// `espalier` alone, or with options only, means `espalier serve`.
std::vector<std::string> with_default_verb(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool global = !arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h" ||
                                             arguments[0] == "--version");
  if (arguments.empty() || (!global && arguments[0].starts_with("-"))) {
    arguments.insert(arguments.begin(), "serve");
  }
  return {arguments.rbegin(), arguments.rend()};  // CLI11 takes them last first
}

int fail(int status, const std::string& message) {
  std::cerr << "espalier: " << message.substr(0, message.find('\n')) << std::endl;
  return status;
}

int run(int argc, char** argv) {
  CLI::App app(description, "espalier");
  app.set_version_flag("--version", ESPALIER_VERSION);
  app.require_subcommand(1);
  Action action;
  for (const auto add : {add_serve, add_generate, add_chat, add_tokenize, add_render, add_logits,
                         add_perplexity, add_bench, add_ls}) {
    add(app, action);
  }
  try {
    app.parse(with_default_verb(argc, argv));
    return action();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help and version
    return fail(exit_usage, std::string(error.what()) + " (espalier --help lists the verbs)");
  } catch (const base::UsageError& error) {
    return fail(exit_usage, error.what());
  } catch (const std::exception& error) {
    return fail(exit_failed, error.what());
  }
}

}  // namespace
}  // namespace espalier::cli

int main(int argc, char** argv) {
  // A reader that closes its end of a pipe is a failed write, not a reason to die.
  std::signal(SIGPIPE, SIG_IGN);
  return espalier::cli::run(argc, argv);
}
