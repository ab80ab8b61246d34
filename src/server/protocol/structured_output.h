#pragma once

#include "server/protocol/generation_options.h"
#include "server/protocol/parameter.h"

namespace espalier::server::protocol {

/// The rules for parameters that say what form the text has to have: `response_format` and those
/// that vLLM's and llama.cpp's clients send. A request may have one of them.
ParameterRules<GenerationOptions> structured_output_rules();

/// Compiles the run's grammar, if it has one, for each of its sequences. Takes some milliseconds,
/// with a large schema many: not for an I/O thread. Throws `RequestError` 400 naming the parameter.
void compile_grammar(const ServedModel& model, PreparedRun& run);

}  // namespace espalier::server::protocol
