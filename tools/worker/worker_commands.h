#pragma once

#include "tools/shell/run_commands.h"

namespace weightcast {

// What weightcast-engine can be told to do.

void add_worker_run_command(const Commands& commands);
void add_worker_generate_command(const Commands& commands);
void add_worker_serve_command(const Commands& commands);

}  // namespace weightcast
