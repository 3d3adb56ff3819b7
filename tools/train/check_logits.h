#pragma once

#include "tools/shell/run_commands.h"

namespace weightcast {

/// Adds "logits DIR --ids 1,2,3" to `check`: the logits after the last of these tokens, as JSON.
void add_check_logits(CLI::App& check, CommandBody& selected);

}  // namespace weightcast
