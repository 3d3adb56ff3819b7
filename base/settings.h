#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace weightcast {

/// A key of a configuration file and its value as text, or one `--set key=value`.
using Setting = std::pair<std::string, std::string>;

/// Reads "key=value". Errors: kInvalidArgument.
[[nodiscard]] Result<Setting> parse_setting(std::string_view text);

/// The texts between the commas of a value, as an array of a configuration file is read; empty ones are left out.
[[nodiscard]] std::vector<std::string> split_names(std::string_view text);

/// One key of a program's configuration: where its value goes, and what it may be. Reading, printing and checking go
/// through a list of them. An optional number may also be "unlimited", which leaves it absent.
struct SettingField {
  using Target =
      std::variant<bool*, std::uint64_t*, double*, std::string*, std::optional<std::uint64_t>*, std::optional<double>*>;

  std::string_view name;
  Target target;
  std::string_view help;
  double least = 0;  ///< of a number
  double most = 1e9;
  std::span<const std::string_view> choices = {};  ///< of a text; empty: any
};

/// Puts the value of `setting` where its field says. `further_names` are keys that the caller reads itself; they count
/// when the nearest name is looked for. Errors: kInvalidArgument, which names the key, its value and its range, or the
/// nearest key or choice; those of check_setting_value().
[[nodiscard]] Status apply_setting(std::span<const SettingField> fields, const Setting& setting,
                                   std::span<const std::string_view> further_names = {});

/// Refuses a value that settings_text() could not write so that it comes back the same. Errors: kInvalidArgument.
[[nodiscard]] Status check_setting_value(const Setting& setting);

/// Rows of a table in Markdown: name, default, values that it takes, meaning.
[[nodiscard]] std::string settings_table(std::span<const SettingField> fields);

/// As lines of a TOML file that give the same values again.
[[nodiscard]] std::string settings_text(std::span<const SettingField> fields);

}  // namespace weightcast
