#include "cli/local_generation.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>

#include "cli/input_text.h"
#include "generation/session.h"

namespace espalier::cli {
namespace {

using generation::FinishReason;
using generation::TokenEvent;
using std::chrono::steady_clock;

/// Events on their way from the engine's thread to this one.
class EventChannel {
 public:
  void push(TokenEvent event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    arrived_.notify_one();
  }

  TokenEvent pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !events_.empty(); });
    TokenEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<TokenEvent> events_;
};

double seconds_between(steady_clock::time_point start, steady_clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace

Generated generate(const server::protocol::ServedModel& model,
                   generation::GenerationRequest request,
                   const std::function<void(std::string_view)>& on_text) {
  const auto channel = std::make_shared<EventChannel>();
  generation::TextAssembler assembler(*model.text.tokenizer, {});
  const auto start = steady_clock::now();
  model.engine->submit(std::move(request),
                       [channel](TokenEvent event) { channel->push(std::move(event)); });
  Generated result;
  std::optional<steady_clock::time_point> first;
  while (result.finish == FinishReason::none) {
    TokenEvent token = channel->pop();
    if (token.finish == FinishReason::error) throw std::runtime_error(token.error);
    if (token.token) {
      if (!first) first = steady_clock::now();
      result.tokens.push_back(*token.token);
    }
    const generation::TextEvent event = assembler.push(std::move(token));
    if (!event.text.empty()) on_text(event.text);
    result.text += event.text;
    result.finish = event.finish;
  }
  const auto end = steady_clock::now();
  result.prompt_seconds = seconds_between(start, first.value_or(end));
  result.generation_seconds = seconds_between(first.value_or(end), end);
  return result;
}

generation::GenerationRequest make_request(const server::protocol::ServedModel& model,
                                           std::vector<tokenizer::TokenId> prompt,
                                           const generation::SamplingParameters& sampling,
                                           std::optional<std::uint64_t> seed,
                                           std::optional<int> max_tokens) {
  generation::GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling = sampling;
  request.sampling.seed = seed ? *seed : random_seed();
  request.max_tokens = max_tokens;
  request.end_tokens = model.text.end_tokens;
  return request;
}

void add_grammar_options(CLI::App& verb, GrammarOptions& options) {
  CLI::Option* schema = verb.add_option("--json-schema", options.schema_file,
                                        "file with a JSON schema that the text follows");
  CLI::Option* text = verb.add_option("--grammar", options.grammar_file,
                                      "file with a grammar that the text follows, GBNF or Lark");
  CLI::Option* regex =
      verb.add_option("--regex", options.regex, "regular expression that the whole text matches");
  schema->excludes(text)->excludes(regex);
  text->excludes(regex);
}

std::shared_ptr<const grammar::Constraint> compile_grammar(
    const server::protocol::ServedModel& model, const GrammarOptions& options) {
  grammar::Grammar grammar;
  const auto read = [&grammar](const std::string& path) {
    grammar.text = require_utf8(read_file(path), path);
  };
  if (!options.schema_file.empty()) {
    read(options.schema_file);
  } else if (!options.grammar_file.empty()) {
    read(options.grammar_file);
    grammar.notation = grammar::grammar_notation(grammar.text);
  } else if (!options.regex.empty()) {
    grammar.notation = grammar::Notation::regex;
    grammar.text = options.regex;
  } else {
    return nullptr;
  }
  return model.grammars->compile(grammar);
}

}  // namespace espalier::cli
