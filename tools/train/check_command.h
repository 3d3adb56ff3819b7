#pragma once

#include "tools/shell/run_commands.h"

namespace weightcast {

/// Adds "check reward|tokenize|advantages", and "check logits|loss" where the build has LibTorch: what a user compares
/// with another framework, JSON in and out.
void add_check_commands(CLI::App& app, CommandBody& selected);

}  // namespace weightcast
