#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace espalier::cli {

/// What the chosen verb does once the whole command line has been read; returns the exit status.
using Action = std::function<int()>;

/// Each adds one verb to the program; parsing that verb sets `action`, which owns the options.
void add_serve(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_render(CLI::App& app, Action& action);
void add_logits(CLI::App& app, Action& action);
void add_perplexity(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_ls(CLI::App& app, Action& action);

}  // namespace espalier::cli
