#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace espalier::cli {

/// What the verb on the command line does; run after parsing. Throws `UsageError` (exit status 2)
/// or any other exception (1).
using Action = std::function<void()>;

/// Each adds one verb to `app`; when that verb is given, parsing sets `action`.
void add_serve(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_render(CLI::App& app, Action& action);
void add_parse_tools(CLI::App& app, Action& action);
void add_logits(CLI::App& app, Action& action);
void add_perplexity(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_embed(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_fit(CLI::App& app, Action& action);
void add_ls(CLI::App& app, Action& action);

}  // namespace espalier::cli
