#pragma once

#include <CLI/CLI.hpp>

namespace weightcast {

/// Adds the option --config FILE to `app`: a TOML file whose keys are the names, without dashes, of the options that
/// are added to `app` after this call. The command line takes precedence. An unknown key, a section and an unreadable
/// file are usage errors. CLI11's own set_config() does not work for subcommands.
void add_config_option(CLI::App& app);

}  // namespace weightcast
