#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/settings.h"

namespace weightcast {

/// Adds the option --config FILE to `app`: a TOML file whose keys are the names, without dashes, of the options that
/// are added to `app` after this call. The command line takes precedence. An unknown key, a section, a text
/// with #, " or \ in it and an unreadable file are usage errors. CLI11's own set_config() does not work for subcommands.
void add_config_option(CLI::App& app);

/// The keys and values of a TOML file as text, for programs whose keys are no options. The key of a section is
/// "section.key"; the values of an array are separated by commas.
/// Errors: kInvalidArgument, which names the file, if it cannot be read, and the key of a text with #, " or \ in it.
[[nodiscard]] Result<std::vector<std::pair<std::string, std::string>>> read_config_items(const std::string& file);

/// "FILE line 3", where `file` gives `key` a value; "FILE" if it does not.
[[nodiscard]] std::string place_in_config(const std::string& file, const std::string& key);

/// Those of `file`, unless that is empty, and then those of `--set KEY=VALUE`. Errors: as read_config_items();
/// kInvalidArgument (no KEY=VALUE).
[[nodiscard]] Result<std::vector<Setting>> read_settings(const std::string& file, std::span<const std::string> sets);

}  // namespace weightcast
