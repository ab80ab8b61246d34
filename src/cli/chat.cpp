#include <csignal>
#include <cstddef>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "cli/input_text.h"
#include "cli/line_editor.h"
#include "cli/local_generation.h"
#include "cli/model_options.h"
#include "cli/option_checks.h"
#include "cli/verbs.h"
#include "server/protocol/chat_prompt.h"

namespace espalier::cli {
namespace {

struct ChatOptions {
  ModelOptions model;
  std::string system;
  std::optional<float> temperature;
  std::optional<std::uint64_t> seed;
  std::optional<int> max_tokens;
};

constexpr const char* help =
    "Type a message and press Enter.\n"
    "  /help   this text\n"
    "  /clear  forget the conversation\n"
    "  /exit   leave (also Ctrl-D)\n"
    "Ctrl-C stops an answer.\n";

/// Lets SIGINT interrupt what is done instead of the program.
class InterruptFlag {
 public:
  InterruptFlag() {
    struct sigaction action {};
    action.sa_handler = [](int) { raised_ = 1; };
    sigemptyset(&action.sa_mask);  // no SA_RESTART: reading a line returns too
    sigaction(SIGINT, &action, nullptr);
  }

  static bool take() {
    const bool raised = raised_ != 0;
    raised_ = 0;
    return raised;
  }
  static bool raised() { return raised_ != 0; }

 private:
  static inline volatile std::sig_atomic_t raised_ = 0;
};

class Conversation {
 public:
  Conversation(const server::protocol::ServedModel& model, const ChatOptions& options)
      : model_(model), options_(options) {
    clear();
  }

  void clear() {
    chat_.messages = server::protocol::Json::array();
    if (!options_.system.empty()) add("system", options_.system);
  }

  /// Prints the answer to `text` and keeps both; what was said before an interrupt counts.
  void ask(const std::string& text) {
    add("user", text);
    generation::SamplingParameters sampling = model_.text.sampling_defaults;
    if (options_.temperature) sampling.temperature = *options_.temperature;
    auto request =
        make_request(model_, encode_pieces(*model_.text.tokenizer, render_chat(model_, chat_)),
                     sampling, options_.seed, options_.max_tokens);
    const base::CancellationToken cancellation = request.cancellation;
    InterruptFlag::take();
    try {
      const Generated answer = generate(model_, std::move(request), [&](std::string_view piece) {
        std::cout << piece << std::flush;
        if (InterruptFlag::raised() || !std::cout) cancellation.cancel();
      });
      add("assistant", answer.text);
      std::cout << "\n";
      if (answer.finish == generation::FinishReason::length) say_what_ended(answer);
    } catch (const base::RequestError& error) {
      chat_.messages.erase(chat_.messages.size() - 1);
      std::cerr << error.what() << " /clear starts anew.\n";
    }
    InterruptFlag::take();
  }

 private:
  void say_what_ended(const Generated& answer) const {
    const bool by_option = options_.max_tokens &&
                           answer.tokens.size() >= static_cast<std::size_t>(*options_.max_tokens);
    std::cerr << (by_option ? "(the answer reached --max-tokens)\n"
                            : "(the context is full; /clear makes room)\n");
  }

  void add(const std::string& role, const std::string& content) {
    chat_.messages.push_back({{"role", role}, {"content", content}});
  }

  const server::protocol::ServedModel& model_;
  const ChatOptions& options_;
  server::protocol::ChatInput chat_;
};

/// One line of the user's; false when it ends the session.
bool obey(const std::string& line, Conversation& conversation) {
  if (line == "/exit" || line == "/quit") return false;
  if (line == "/help") {
    std::cout << help;
  } else if (line == "/clear") {
    conversation.clear();
  } else if (line.starts_with("/")) {
    std::cerr << "unknown command " << line << "; /help lists them\n";
  } else if (!line.empty()) {
    try {
      conversation.ask(require_utf8(line, "the message"));
    } catch (const base::LoadError& error) {
      std::cerr << error.what() << "\n";
    }
  }
  return true;
}

void run_chat(const ChatOptions& options) {
  require_utf8(options.system, "--system");
  const auto model = load_served_model(hub::resolve(options.model.model), options.model);
  if (!model->chat_template) {
    throw base::LoadError(options.model.model + " has no chat template, so it cannot chat");
  }
  const InterruptFlag interrupts;
  std::error_code ignored;
  std::filesystem::create_directories(hub::home(), ignored);
  LineEditor editor((hub::home() / "chat_history").string());
  Conversation conversation(*model, options);
  while (std::cout) {
    const LineEditor::Result input = editor.read();
    if (input.outcome == LineEditor::Outcome::end) break;
    if (input.outcome == LineEditor::Outcome::interrupted) {
      InterruptFlag::take();
      std::cout << "\n";
      continue;
    }
    if (!obey(input.text, conversation)) break;
  }
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* verb = app.add_subcommand("chat", "Talk with a model");
  add_model_options(*verb, options->model);
  add_engine_options(*verb, options->model);
  verb->add_option("--system", options->system, "the system message");
  verb->add_option("--temperature", options->temperature,
                   "0 takes the most likely token (default: the model's own)")
      ->check(real_number(0, most_temperature));
  verb->add_option("--seed", options->seed, "the same seed gives the same answers")
      ->check(seed_number());
  verb->add_option("--max-tokens", options->max_tokens, "most tokens in an answer")
      ->check(whole_number(1));
  verb->footer(std::string("In a conversation:\n") + help);
  verb->callback([options, &action] { action = [options] { run_chat(*options); }; });
}

}  // namespace espalier::cli
