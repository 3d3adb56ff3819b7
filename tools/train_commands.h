#pragma once

#include "tools/run_commands.h"

namespace weightcast {

/// `weightcast-train run`.
void add_train_run_command(CLI::App& app, CommandBody& selected);
/// `weightcast-train plot`.
void add_train_plot_command(CLI::App& app, CommandBody& selected);

}  // namespace weightcast
