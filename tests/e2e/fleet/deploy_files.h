#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace weightcast {

[[nodiscard]] inline std::string deploy_file(const std::string& name) {
  return std::string(WEIGHTCAST_DEPLOY) + "/" + name;
}

/// The value of a unit's setting; "" if it has none.
[[nodiscard]] inline std::string setting(const std::string& unit, const std::string& name) {
  std::istringstream lines(unit);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  return "";
}

/// The words of the command that a unit starts.
[[nodiscard]] inline std::vector<std::string> arguments_of(const std::string& unit) {
  std::istringstream words(setting(unit, "ExecStart"));
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace weightcast
