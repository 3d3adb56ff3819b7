#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

/// Adds `faults` to the program's commands: broadcasts with a fault in their middle, each against one without.
void add_faults_command(CLI::App& app);

}  // namespace weightcast::bench
