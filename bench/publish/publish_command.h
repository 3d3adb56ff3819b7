#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

/// Adds `publish` to the program's commands: how long publishing from memory blocks the trainer.
void add_publish_command(CLI::App& app);

}  // namespace weightcast::bench
