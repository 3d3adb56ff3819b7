#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings.h"
#include "observe/operator_port.h"

namespace weightcast {

/// The flags of a program that has a port for operators.
struct HttpFlags {
  std::string listen;
  std::string token_file;
};

/// Adds --http, with `help`, and --http-token.
void add_http_options(CLI::App& command, HttpFlags& flags, const std::string& help);

/// Takes the keys `http` and `http-token` of a configuration file out of `settings`. A flag on the command line wins.
void take_http_settings(std::vector<Setting>& settings, HttpFlags& flags);

/// What `flags` ask for; absent if they name no port. `keys`, `revocation_directories` and `warn` as in
/// OperatorPortOptions. Errors: kInvalidArgument (no HOST:PORT; a token without a port); those of
/// OperatorPort::check().
[[nodiscard]] Result<std::optional<OperatorPortOptions>> operator_options(
    const HttpFlags& flags, const std::string& keys, std::vector<std::string> revocation_directories,
    std::function<void(const std::string&)> warn);

/// Writes where `port` listens to http_address in `directory`. Errors: those of the disk.
[[nodiscard]] Status write_http_address(const OperatorPort& port, const std::string& directory);

}  // namespace weightcast
