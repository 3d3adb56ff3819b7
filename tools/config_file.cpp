#include "tools/config_file.h"

#include <string>

namespace weightcast {
namespace {

void read_config(CLI::App& app, const std::string& file) {
  CLI::ConfigTOML toml;
  for (const CLI::ConfigItem& item : toml.from_file(file)) {
    CLI::Option* option = item.parents.empty() ? app.get_option_no_throw("--" + item.name) : nullptr;
    if (option == nullptr || !option->get_configurable()) {
      throw CLI::ConfigError(file + ": '" + item.fullname() + "' is no option of '" + app.get_name() + "'");
    }
    if (!option->empty()) continue;  // given on the command line
    if (option->get_expected_min() == 0) {
      option->add_result(option->get_flag_value(item.name, toml.to_flag(item)));
    } else {
      option->add_result(item.inputs);
    }
  }
}

}  // namespace

void add_config_option(CLI::App& app) {
  // Options are looked at in the order in which they were added: those that follow find what this one read.
  app.add_option_function<std::string>(
         "--config", [&app](const std::string& file) { read_config(app, file); },
         "Read options from a TOML file; names are those of the options, the command line wins")
      ->check(CLI::ExistingFile)
      ->configurable(false);
}

}  // namespace weightcast
