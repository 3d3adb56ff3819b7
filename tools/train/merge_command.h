#pragma once

#include "tools/shell/run_commands.h"

namespace weightcast {

/// Adds "merge DIR ADAPTER OUT": a model with a low-rank adapter added to its matrices, as a model of its own.
void add_merge_command(CLI::App& app, CommandBody& selected);

}  // namespace weightcast
