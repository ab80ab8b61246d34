#include "server/protocol/chat_answer.h"

#include "chat/call_grammar.h"
#include "chat/reasoning_budget.h"

namespace espalier::server::protocol {
namespace {

using grammar::Notation;

/// The grammar of forced calls.
std::string forced_calls(const ServedModel& model, const ToolOptions& tools) {
  return chat::call_grammar(
      *model.style.dialect, chat::ToolSet(dump(tools.tools)),
      {.only = tools.only, .parallel = tools.parallel},
      [&model](std::string_view markup) { return model.grammars->reference(markup); });
}

/// An answer that is either calls or what the request's grammar allows.
void allow_calls(const ServedModel& model, const ToolOptions& tools, RequestedGrammar& requested) {
  if (requested.grammar.notation != Notation::json_schema) {
    throw base::RequestError(
        400, "unsupported_parameter",
        "'" + requested.parameter + "' and 'tools' go together only for a JSON schema.",
        requested.parameter);
  }
  static constexpr std::string_view start = "start: ";
  std::string calls = forced_calls(model, tools);
  calls.erase(0, start.size());
  requested.grammar = {
      .notation = Notation::lark,
      .text = "start: calls | text\ntext: %json " + requested.grammar.text + "\ncalls: " + calls,
      .text_close = chat::argument_close(*model.style.dialect)};
}

}  // namespace

AnswerReading read_answers(const ServedModel& model, const ToolOptions& tools,
                           std::string_view prompt) {
  return {.parser = {.dialect = model.style.dialect,
                     .calls = tools.offered(),
                     .reasoning = model.style.reasoning,
                     .prompt_end = std::string(prompt),
                     .tools = chat::ToolSet(dump(tools.tools))},
          .parallel = tools.parallel};
}

void add_call_grammar(const ServedModel& model, const ToolOptions& tools, std::string_view prompt,
                      PreparedRun& run) {
  if (tools.choice == ToolChoice::required) {
    if (run.constraint) {
      throw base::RequestError(
          400, "unsupported_parameter",
          "'" + run.constraint->parameter + "' does not go together with a required tool call.",
          run.constraint->parameter);
    }
    run.constraint =
        RequestedGrammar{.grammar = {.notation = Notation::lark,
                                     .text = forced_calls(model, tools),
                                     .text_close = chat::argument_close(*model.style.dialect)},
                         .parameter = "tools"};
  } else if (run.constraint && tools.offered()) {
    allow_calls(model, tools, *run.constraint);
  }
  if (!run.constraint || model.style.reasoning.open.empty()) return;
  const bool open = chat::opens_reasoning(prompt, model.style.reasoning);
  if (!open && !model.style.reasons) return;
  run.constraint->grammar.reasoning =
      grammar::Reasoning{.open = open ? "" : model.style.reasoning.open.front(),
                         .close = model.style.reasoning.close.front()};
}

void limit_reasoning(const ServedModel& model, int tokens, std::string_view prompt,
                     PreparedRun& run) {
  if (model.style.reasoning.close.empty()) {
    throw base::RequestError(400, "unsupported_parameter",
                             "'thinking_budget_tokens' is not supported for this model: its "
                             "reasoning has no marks.",
                             "thinking_budget_tokens");
  }
  const chat::ReasoningBudget budget{.tokens = tokens,
                                     .open = chat::opens_reasoning(prompt, model.style.reasoning)};
  for (generation::GenerationRequest& sequence : run.sequences) {
    sequence.constraint =
        chat::limit_reasoning(budget, model.style.reasoning, model.text.tokenizer,
                              model.engine->info().vocabulary, std::move(sequence.constraint));
  }
}

}  // namespace espalier::server::protocol
