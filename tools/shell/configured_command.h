#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/shell/config_file.h"
#include "tools/shell/run_commands.h"

namespace weightcast {

/// Adds a flag for each of `fields`: its name with dashes. What is given goes to the end of `given`, unless that is
/// null, and, as the check of a flag, into the member that its field describes.
void add_setting_flags(CLI::App& command, std::span<const SettingField> fields, std::vector<Setting>* given = nullptr);

/// The settings of a command, as its flags and its file give them.
struct GivenSettings {
  std::string file;
  std::vector<Setting> flags;

  /// Those of `file`, unless that is empty, and then the flags, which win. Errors: those of read_settings().
  [[nodiscard]] Result<std::vector<Setting>> all() const;
};

/// Adds --config FILE, and the flags of `fields`, whose members tell nothing afterwards. `document` lists them. `given`
/// outlives the command.
void add_setting_options(CLI::App& command, std::span<const SettingField> fields, const std::string& document,
                         GivenSettings& given);

/// Reads a command's file anew, and what its flags give. Errors: as at its start.
template <typename Config>
using ReadSettingsAgain = std::function<Result<Config>()>;

/// A command that reads a configuration of one kind, and runs.
template <typename Config>
struct ConfiguredCommand {
  std::string name;
  std::string text;
  std::string document;  ///< that lists its settings
  std::vector<SettingField> (*fields)(Config& config);
  Result<Config> (*make)(std::span<const Setting> settings);
  Status (*run)(const Config& config, const ReadSettingsAgain<Config>& read_again);
};

/// Adds it, with the options of add_setting_options(), --print-config and --list-keys.
template <typename Config>
void add_configured_command(const Commands& commands, const ConfiguredCommand<Config>& command) {
  struct Flags {
    Config checked;
    GivenSettings given;
    bool print_config = false;
    bool list_keys = false;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* const added = commands.app.add_subcommand(command.name, command.text);
  add_setting_options(*added, command.fields(flags->checked), command.document, flags->given);
  added->add_flag("--print-config", flags->print_config, "Print the configuration as TOML, and do nothing else");
  added->add_flag("--list-keys", flags->list_keys, "Print all keys with default, values and meaning");
  added->callback([flags, command, &selected = commands.selected] {
    selected = [flags, command]() -> Status {
      Config config;
      const auto read = [flags, make = command.make]() -> Result<Config> {
        WC_ASSIGN(const std::vector<Setting> settings, flags->given.all());
        return make(settings);
      };
      if (!flags->list_keys) {
        WC_ASSIGN(config, read());
        if (!flags->print_config) return command.run(config, read);
      }
      const std::vector<SettingField> fields = command.fields(config);
      std::fputs((flags->list_keys ? settings_table(fields) : settings_text(fields)).c_str(), stdout);
      return {};
    };
  });
}

}  // namespace weightcast
