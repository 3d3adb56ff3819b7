#pragma once

#include <vector>

#include "base/settings.h"
#include "tools/run_commands.h"

namespace weightcast {

/// Flags of a learner's settings that config_fields() does not describe: --preset and --task-option.
void add_recipe_options(CLI::App& command, std::vector<Setting>& into);

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
