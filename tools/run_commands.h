#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/log_words.h"
#include "base/result.h"
#include "base/words.h"

namespace weightcast {

/// The action of a subcommand, after its flags are parsed. Its error is printed on one line, and the exit status is 1.
using CommandBody = std::function<Status()>;

/// Adds an option whose value is a word of an enum (base/words.h).
template <typename Enum>
CLI::Option* add_word_option(CLI::App& command, const std::string& name, Enum& value, const std::string& text) {
  return command
      .add_option_function<std::string>(
          name, [&value](const std::string& word) { value = *find_word<Enum>(word); }, text)
      ->check(CLI::IsMember(words<Enum>()))
      ->default_str(std::string(to_string(value)));
}

/// Adds --log-format.
void add_log_format_option(CLI::App& command, LogFormat& format);

/// Runs `selected`, prints its error, returns the exit status: 0 done, 1 failed, 2 wrong flags or a configuration (Op::
/// kConfigure) that fails again however often it is tried. The error of a command with --log-format json is a line of
/// JSON.
[[nodiscard]] int run_commands(CLI::App& app, const CommandBody& selected, int argc, char** argv);

}  // namespace weightcast
