#pragma once

#include "tools/shell/run_commands.h"

namespace weightcast {

/// `weightcast-train run`.
void add_train_run_command(CLI::App& app, CommandBody& selected);
/// `weightcast-train plan`.
void add_train_plan_command(CLI::App& app, CommandBody& selected);
#if defined(WEIGHTCAST_TORCH)
/// `weightcast-train calibrate`.
void add_train_calibrate_command(CLI::App& app, CommandBody& selected);
#endif
/// `weightcast-train plot`.
void add_train_plot_command(CLI::App& app, CommandBody& selected);

}  // namespace weightcast
