#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <type_traits>

#include "bench/fleet/fleet_flags.h"

namespace weightcast::bench {

/// A command without flags so far, and what they will set. The command owns both.
template <typename Arguments>
struct BenchCommand {
  CLI::App* command;
  Arguments* arguments;
};

/// Adds a command that runs `run`, whose error becomes one line on stderr and exit status 1. `Arguments` is const where
/// `run` takes them so.
template <typename Arguments>
[[nodiscard]] auto add_bench(CLI::App& app, const std::string& name, const std::string& description,
                             Status (*run)(Arguments&)) {
  const auto arguments = std::make_shared<std::remove_const_t<Arguments>>();
  CLI::App* const command = app.add_subcommand(name, description);
  command->callback([arguments, run] { finish_bench(run(*arguments)); });
  return BenchCommand<std::remove_const_t<Arguments>>{command, arguments.get()};
}

}  // namespace weightcast::bench
