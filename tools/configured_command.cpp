#include "tools/configured_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace weightcast {
namespace {

void add_setting_option(CLI::App& command, const SettingField& field, std::vector<Setting>& into) {
  const std::string name(field.name()), text(field.text());
  std::string flag = "--" + name;
  std::ranges::replace(flag, '_', '-');
  CLI::Option* option = nullptr;
  if (field.kind() == SettingKind::kFlag) {
    command.add_flag_function(
        flag,
        [&into, name](std::int64_t count) {
          into.push_back({name, count > 0 ? "true" : "false"});
        },
        text);
    return;
  }
  if (field.kind() == SettingKind::kList) {
    option = command.add_option_function<std::vector<std::string>>(
        flag,
        [&into, name](const std::vector<std::string>& items) {
          into.push_back({name, fmt::format("{}", fmt::join(items, ","))});
        },
        text);
  } else {
    option = command.add_option_function<std::string>(
        flag,
        [&into, name](const std::string& value) {
          into.push_back({name, value});
        },
        text);
  }
  // Help, manual pages and completions read choices and bounds from these names, which have CLI11's own form.
  const std::string type = field.kind() == SettingKind::kWhole    ? "UINT"
                           : field.kind() == SettingKind::kNumber ? "FLOAT"
                                                                  : "TEXT";
  const std::string values = !field.choices().empty() ? fmt::format("{{{}}}", fmt::join(field.choices(), ","))
                             : type != "TEXT"         ? fmt::format("{} in [{}]", type, field.bounds())
                                                      : "";
  option->type_name(type)->default_str(field.value());
  option->check(CLI::Validator(
      [field](const std::string& value) {
        const Status taken = field.set(value);
        return taken.has_value() ? std::string() : taken.error().detail;
      },
      values));
}

}  // namespace

Result<std::vector<Setting>> GivenSettings::all() const {
  std::vector<Setting> settings;
  if (!file.empty()) {
    WC_ASSIGN(settings, read_settings(file));
  }
  settings.insert(settings.end(), flags.begin(), flags.end());
  return settings;
}

void add_setting_options(CLI::App& command, std::span<const SettingField> fields, const std::string& document,
                         GivenSettings& given) {
  command.add_option("--config", given.file,
                     "A TOML file of settings by their names; the command line wins. " + document + " lists them");
  for (const SettingField& field : fields) add_setting_option(command, field, given.flags);
}

}  // namespace weightcast
