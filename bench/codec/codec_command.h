#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

/// Adds `codec` to the program's commands: --cells, --threads, --repetitions, --seed, --trace, --codec, --json and
/// --update-sizes. Prints a line for each case as it is measured. A failure is one line on stderr and leaves
/// CLI::RuntimeError(1) for the program's own CLI::App::exit().
void add_codec_command(CLI::App& app);

}  // namespace weightcast::bench
