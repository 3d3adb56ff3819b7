#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

/// Adds `relay` to the program's commands: throughput of one store-and-forward hop without limits.
void add_relay_command(CLI::App& app);

}  // namespace weightcast::bench
