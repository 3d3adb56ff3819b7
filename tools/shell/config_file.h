#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/settings/settings.h"

namespace weightcast {

/// The settings of a TOML file's text, in the order of their lines. `file` is its name, for errors and Setting::where.
/// That of a section is "section.key", and that of an array join_items(). Errors: kInvalidArgument, which says the line
/// and what stands there: no TOML, a date, an array of arrays.
[[nodiscard]] Result<std::vector<Setting>> parse_settings(std::string_view text, const std::string& file);

/// Those of a file. Errors: as parse_settings(); kInvalidArgument, which names the file, if it cannot be read or is
/// larger than a configuration is.
[[nodiscard]] Result<std::vector<Setting>> read_settings(const std::string& file);

}  // namespace weightcast
