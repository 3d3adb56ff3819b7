#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log_line.h"
#include "tools/config_file.h"
#include "tools/operator_options.h"
#include "tools/run_commands.h"

namespace weightcast {

/// A program that reads a configuration of one kind, and runs.
template <typename Config>
struct ConfiguredProgram {
  Result<Config> (*make)(std::span<const Setting> settings);
  std::string (*table)();
  std::string (*text)(const Config& config);
  std::string_view component;  ///< what its log calls it
  Status (*run)(const Config& config, const LogStyle& log, const HttpFlags& http);
};

/// Adds the subcommand `run` with --config FILE, --set KEY=VALUE, --print-config, --list-keys, --log-format, --http and
/// --http-token. `document` lists the keys; the file may have http and http-token, too, as a daemon's has.
template <typename Config>
void add_configured_command(CLI::App& app, CommandBody& selected, const std::string& help, const std::string& document,
                            const ConfiguredProgram<Config>& program) {
  struct Flags {
    std::string config;
    std::vector<std::string> settings;
    bool print_config = false;
    bool list_keys = false;
    std::string log_format = "text";
    HttpFlags http;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("run", help);
  command->add_option("--config", flags->config, "A TOML file; " + document + " lists its keys");
  command->add_option("--set", flags->settings, "KEY=VALUE, which replaces the file's; may be given several times");
  command->add_flag("--print-config", flags->print_config, "Print the configuration as TOML, and do nothing else");
  command->add_flag("--list-keys", flags->list_keys, "Print all keys with default, values and meaning");
  add_log_format_option(*command, flags->log_format);
  add_http_options(*command, flags->http,
                   "Where Prometheus reads /metrics (docs/OPERATING.md); without it nowhere. Open to this host on "
                   "loopback; elsewhere with --http-token, or with the configuration's keys, encrypted");
  command->callback([flags, program, &selected] {
    selected = [flags, program]() -> Status {
      if (flags->list_keys) {
        std::fputs(program.table().c_str(), stdout);
        return {};
      }
      WC_ASSIGN(std::vector<Setting> settings, read_settings(flags->config, flags->settings));
      take_http_settings(settings, flags->http);
      WC_ASSIGN(const Config config, program.make(settings));
      if (flags->print_config) {
        std::fputs(program.text(config).c_str(), stdout);
        return {};
      }
      WC_ASSIGN(const LogFormat format, parse_log_format(flags->log_format));
      return program.run(config, {format, std::string(program.component)}, flags->http);
    };
  });
}

}  // namespace weightcast
