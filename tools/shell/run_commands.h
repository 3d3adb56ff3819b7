#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace weightcast {

/// The action of a subcommand, after its flags are parsed. Its error is printed on one line, and the exit status is 1.
using CommandBody = std::function<Status()>;

/// Every add_*_command() adds to `app`, and sets `selected` when a command of its own was chosen.
struct Commands {
  CLI::App& app;
  CommandBody& selected;
};

/// A command without options so far, and what they will set. The command owns both.
template <typename Flags>
struct AddedCommand {
  CLI::App* app;
  Flags* flags;
};

/// Adds a command that runs `body`.
template <typename Flags>
[[nodiscard]] AddedCommand<Flags> add_command(const Commands& commands, const std::string& name,
                                              const std::string& text, Status (*body)(const Flags&)) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* const app = commands.app.add_subcommand(name, text);
  app->callback([flags, body, selected = &commands.selected] { *selected = [flags, body] { return body(*flags); }; });
  return {app, flags.get()};
}

/// Runs `selected`, prints its error, returns the exit status: 0 done, 1 failed, 2 wrong flags or a configuration (Op::
/// kConfigure) that fails again however often it is tried. The error of a command with --log-format json is a line of
/// JSON.
[[nodiscard]] int run_commands(CLI::App& app, const CommandBody& selected, int argc, char** argv);

}  // namespace weightcast
