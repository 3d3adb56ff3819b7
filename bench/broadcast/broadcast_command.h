#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

/// Adds `broadcast` to the program's commands: time until every worker of a fleet of real processes has installed a
/// snapshot. Prints a line for each case as it is measured.
void add_broadcast_command(CLI::App& app);

}  // namespace weightcast::bench
