#pragma once

#include "tools/shell/run_commands.h"

namespace weightcast {

/// Adds "model DIR": what a model is made of, as JSON, after its weights have been checked against config.json.
void add_model_command(CLI::App& app, CommandBody& selected);

}  // namespace weightcast
