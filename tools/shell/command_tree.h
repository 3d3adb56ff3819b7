#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace weightcast {

/// One option or positional argument of a command, as its help says it.
struct DescribedOption {
  std::vector<std::string> names;    ///< "-V", "--version"; of a positional argument its one name
  std::string value;                 ///< kind of its value: "TEXT", "UINT"; "" of a flag
  std::string range;                 ///< "[1 - 1000]", or ""
  std::vector<std::string> choices;  ///< where the value is one of a list
  std::string default_value;         ///< or ""
  std::string text;
  bool required = false;
  bool repeated = false;  ///< takes several values
};

/// A command and those below it, without what is hidden. Pure data.
struct DescribedCommand {
  std::string name;  ///< of the program, or the word that chooses the command
  std::string text;
  std::vector<DescribedOption> options;
  std::vector<DescribedOption> positionals;
  std::vector<DescribedCommand> commands;
};

[[nodiscard]] DescribedCommand describe(const CLI::App& app);

}  // namespace weightcast
