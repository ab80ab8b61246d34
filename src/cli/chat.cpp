#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <unistd.h>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/line_editor.h"
#include "cli/model_options.h"
#include "cli/sampling_options.h"
#include "cli/verbs.h"
#include "server/protocol/chat_prompt.h"

namespace espalier::cli {
namespace {

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  std::string system;
  std::optional<int> max_tokens;
};

constexpr const char* help =
    "/help   this list\n"
    "/clear  forget the conversation\n"
    "/retry  answer the last message again\n"
    "/exit   leave (also Ctrl-D); Ctrl-C stops an answer\n";

/// The answer being generated, for the signal handler: an atomic load and a relaxed store are all
/// it does.
std::atomic<const base::CancellationToken*> running = nullptr;

void stop_answer(int /*signal*/) {
  if (const base::CancellationToken* token = running.load()) token->cancel();
}

/// One conversation with a model.
class Conversation {
 public:
  Conversation(std::shared_ptr<const server::protocol::ServedModel> model,
               const ChatOptions& options)
      : model_(std::move(model)), options_(options) {
    clear();
  }

  void clear() {
    input_.messages = server::protocol::Json::array();
    if (!options_.system.empty()) add("system", options_.system);
  }

  /// Removes the last answer; false when there is none to repeat.
  bool take_back() {
    if (input_.messages.empty() || input_.messages.back()["role"] != "assistant") return false;
    input_.messages.erase(input_.messages.size() - 1);
    return true;
  }

  void say(const std::string& text) {
    add("user", text);
    try {
      answer();
    } catch (const base::RequestError& error) {
      input_.messages.erase(input_.messages.size() - 1);
      std::cerr << error.what() << std::endl;
    }
  }

  void answer() {
    generation::GenerationRequest request;
    request.prompt = server::protocol::encode_pieces(
        *model_->text.tokenizer, server::protocol::render_chat(*model_, input_));
    request.sampling = sampling_parameters(options_.sampling, model_->text.sampling_defaults);
    request.max_tokens = options_.max_tokens;
    request.end_tokens = model_->text.end_tokens;
    const base::CancellationToken cancellation = request.cancellation;
    running = &cancellation;
    const Answer answer =
        generate_answer(*model_, std::move(request), options_.sampling.stop,
                        [](const std::string& text) { std::cout << text << std::flush; });
    running = nullptr;
    std::cout << std::endl;
    add("assistant", answer.text);
  }

 private:
  void add(const char* role, const std::string& content) {
    input_.messages.push_back({{"role", role}, {"content", content}});
  }

  std::shared_ptr<const server::protocol::ServedModel> model_;
  const ChatOptions& options_;
  server::protocol::ChatInput input_;
};

int chat(const ChatOptions& options) {
  generation::EngineOptions engine = engine_options(options.model);
  engine.max_running = 1;
  const auto model = load_with_engine(hub::resolve(options.model.model), engine);
  if (!model->chat_template) {
    throw base::LoadError("The model " + options.model.model +
                          " has no chat template; 'espalier generate --raw' continues a text.");
  }
  std::signal(SIGINT, stop_answer);
  Conversation conversation(model, options);
  LineEditor editor;
  if (isatty(STDIN_FILENO) != 0) std::cerr << model->alias << "; /help lists commands\n";
  while (const auto line = editor.read("> ")) {
    if (line->empty()) continue;
    if (*line == "/exit" || *line == "/quit") break;
    if (*line == "/help") {
      std::cout << help << std::flush;
    } else if (*line == "/clear") {
      conversation.clear();
    } else if (*line == "/retry") {
      if (conversation.take_back()) conversation.answer();
    } else if (line->starts_with('/')) {
      std::cerr << "There is no command " << *line << "; /help lists them." << std::endl;
    } else {
      conversation.say(*line);
    }
  }
  return 0;
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "chat", "Talk with a model. /help lists commands; Ctrl-C stops an answer, Ctrl-D leaves.");
  const auto options = std::make_shared<ChatOptions>();
  add_model_options(*verb, options->model);
  verb->add_option("--system", options->system, "The system message");
  verb->add_option("--max-tokens", options->max_tokens,
                   "Most tokens of one answer (default: until the context ends)")
      ->check(CLI::PositiveNumber);
  add_sampling_options(*verb, options->sampling);
  verb->callback([options, &action] { action = [options] { return chat(*options); }; });
}

}  // namespace espalier::cli
