#include "tools/shell/configured_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace weightcast {
namespace {

std::string error_of(const Status& status) { return status.has_value() ? "" : status.error().detail; }

/// Help, manual pages and completions read the kind of a value, choices and bounds from names that have CLI11's form.
void describe_values(const SettingField& field, CLI::Option& option) {
  const SettingKind kind = field.kind();
  const std::string type = kind == SettingKind::kWhole    ? "UINT"
                           : kind == SettingKind::kNumber ? "FLOAT"
                           : kind == SettingKind::kNamed  ? field.bounds()
                                                          : "TEXT";
  const bool is_number = kind == SettingKind::kWhole || kind == SettingKind::kNumber;
  const std::string values = !field.choices().empty() ? fmt::format("{{{}}}", fmt::join(field.choices(), ","))
                             : is_number              ? fmt::format("{} in [{}]", type, field.bounds())
                                                      : "";
  option.type_name(type)->default_str(field.value());
  option.check(CLI::Validator([field](const std::string& value) { return error_of(field.set(value)); }, values));
}

}  // namespace

void add_setting_flags(CLI::App& command, std::span<const SettingField> fields, std::vector<Setting>* given) {
  for (const SettingField& field : fields) {
    std::string flag = "--" + std::string(field.name());
    std::ranges::replace_if(
        flag, [](char c) { return c == '_' || c == '.'; }, '-');
    const std::string text(field.text());
    const auto take = [name = std::string(field.name()), given](const std::string& value) {
      if (given != nullptr) given->push_back({name, value});
    };
    if (field.kind() == SettingKind::kFlag) {
      const auto take_flag = [field, take](std::int64_t count) {
        const std::string value = count > 0 ? "true" : "false";
        WC_CHECK(field.set(value).has_value());
        take(value);
      };
      command.add_flag_function(flag, take_flag, text);
      continue;
    }
    const auto take_words = [is_list = field.kind() == SettingKind::kList,
                             take](const std::vector<std::string>& words) {
      if (is_list) return take(fmt::format("{}", fmt::join(words, ",")));
      std::ranges::for_each(words, take);
    };
    CLI::Option* const option = command.add_option_function<std::vector<std::string>>(flag, take_words, text);
    // Of several the last one counts: scripts add theirs to what they were given. A word behind a flag's value is no
    // value of it, but a word too many.
    if (field.kind() != SettingKind::kList && field.kind() != SettingKind::kNamed) {
      option->expected(1)->take_last()->allow_extra_args(false);
    }
    describe_values(field, *option);
  }
}

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
  add_setting_flags(command, fields, &given.flags);
}

}  // namespace weightcast
