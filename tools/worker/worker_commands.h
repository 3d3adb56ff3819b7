#pragma once

#include "tools/shell/run_commands.h"

namespace weightcast {

/// `weightcast-worker run`.
void add_worker_run_command(CLI::App& app, CommandBody& selected);
/// `weightcast-worker generate`.
void add_worker_generate_command(CLI::App& app, CommandBody& selected);
/// `weightcast-worker serve`.
void add_worker_serve_command(CLI::App& app, CommandBody& selected);

}  // namespace weightcast
