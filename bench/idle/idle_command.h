#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

/// Adds `idle` to the program's commands: what workers cost that wait, and how fast one more is served.
void add_idle_command(CLI::App& app);

}  // namespace weightcast::bench
