#pragma once

#include <CLI/CLI.hpp>

namespace weightcast {

/// Gives `app` the option --config FILE: a TOML file whose keys are the names of the options that `app` gets after
/// this, without their dashes. What stands on the command line wins. CLI11's own set_config() reads nothing for
/// subcommands. A key that is no option, a section and a file that cannot be read are usage errors.
void add_config_option(CLI::App& app);

}  // namespace weightcast
