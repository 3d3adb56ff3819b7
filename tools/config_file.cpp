#include "tools/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <string>

#include "base/text.h"

namespace weightcast {
namespace {

Status check_texts(const std::string& file);

void read_config(CLI::App& app, const std::string& file) {
  if (const Status texts = check_texts(file); !texts.has_value()) throw CLI::ConfigError(texts.error().detail);
  CLI::ConfigTOML toml;
  for (const CLI::ConfigItem& item : toml.from_file(file)) {
    CLI::Option* option = item.parents.empty() ? app.get_option_no_throw("--" + item.name) : nullptr;
    if (option == nullptr || !option->get_configurable()) {
      throw CLI::ConfigError(place_in_config(file, item.name) + ": '" + item.fullname() + "' is no option of '" +
                             app.get_name() + "'");
    }
    if (!option->empty()) continue;  // given on the command line
    if (option->get_expected_min() == 0) {
      option->add_result(option->get_flag_value(item.name, toml.to_flag(item)));
    } else {
      option->add_result(item.inputs);
    }
  }
}

/// CLI11 cuts a line at a # even in a text, and keeps backslashes: such a value would become another one.
Status check_texts(const std::string& file) {
  std::ifstream in(file);
  std::string key;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    char quote = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (quote == 0) {
        if (c == '#') break;
        if (c == '=') key = CLI::detail::trim_copy(line.substr(0, i));
        if (c == '"' || c == '\'') quote = c;
      } else if (c == quote) {
        quote = 0;
      } else if (c == '#' || c == '"' || c == '\\') {
        return fail(Errc::kInvalidArgument, Op::kConfigure,
                    fmt::format("{} line {}: the value of {} has a {}, which a text cannot hold here", printable(file),
                                number, printable(key), c));
      }
    }
  }
  return {};
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

Result<std::vector<std::pair<std::string, std::string>>> read_config_items(const std::string& file) {
  std::vector<std::pair<std::string, std::string>> items;
  WC_TRY(check_texts(file));
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(file)) {
      if (item.name == "++" || item.name == "--") continue;  // how CLI11 tells where a section begins and ends
      items.emplace_back(item.fullname(), fmt::format("{}", fmt::join(item.inputs, ",")));
    }
  } catch (const CLI::Error& error) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("{}: {}", printable(file), error.what()));
  }
  return items;
}

std::string place_in_config(const std::string& file, const std::string& key) {
  std::ifstream in(file);
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos || CLI::detail::trim_copy(line.substr(0, equals)) != key) continue;
    return fmt::format("{} line {}", printable(file), number);
  }
  return printable(file);
}

Result<std::vector<Setting>> read_settings(const std::string& file, std::span<const std::string> sets) {
  std::vector<Setting> settings;
  if (!file.empty()) {
    WC_ASSIGN(settings, read_config_items(file));
  }
  for (const std::string& text : sets) {
    WC_ASSIGN(Setting setting, parse_setting(text));
    settings.push_back(std::move(setting));
  }
  return settings;
}

}  // namespace weightcast
