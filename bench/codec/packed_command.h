#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

/// Adds `packed` to the program's commands: --size, --repetitions, --seed, --content, --packer and --json. Prints a
/// line for each case as it is measured. A failure is one line on stderr and leaves CLI::RuntimeError(1) for the
/// program's own CLI::App::exit().
void add_packed_command(CLI::App& app);

}  // namespace weightcast::bench
