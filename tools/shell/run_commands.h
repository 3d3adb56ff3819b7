#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace weightcast {

/// The action of a subcommand, after its flags are parsed. Its error is printed on one line, and the exit status is 1.
using CommandBody = std::function<Status()>;

/// Runs `selected`, prints its error, returns the exit status: 0 done, 1 failed, 2 wrong flags or a configuration (Op::
/// kConfigure) that fails again however often it is tried. The error of a command with --log-format json is a line of
/// JSON.
[[nodiscard]] int run_commands(CLI::App& app, const CommandBody& selected, int argc, char** argv);

}  // namespace weightcast
