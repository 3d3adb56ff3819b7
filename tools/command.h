#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "tools/shell/run_commands.h"

namespace weightcast {

void add_archive_commands(const Commands& commands);
void add_daemon_command(const Commands& commands);
void add_doctor_command(const Commands& commands);
void add_exec_command(const Commands& commands);
void add_history_command(const Commands& commands);
/// `export` and `import`, below `patch`: other tools' formats for the step from one version to the next.
void add_interop_commands(const Commands& patch);
void add_keys_command(const Commands& commands);
void add_patch_command(const Commands& commands);
void add_path_command(const Commands& commands);
void add_publish_command(const Commands& commands);
void add_serve_commands(const Commands& commands);
void add_status_command(const Commands& commands);
void add_trace_command(const Commands& commands);
void add_verify_command(const Commands& commands);
void add_versions_command(const Commands& commands);
void add_reload_command(const Commands& commands);
void add_remove_command(const Commands& commands);
void add_ready_command(const Commands& commands);
void add_simulate_command(const Commands& commands);

/// Adds --state. Its default is the environment's WEIGHTCAST_STATE, which a host, a container or a job sets once;
/// without that it is required.
CLI::Option* add_state_option(CLI::App& app, std::string& state, const std::string& what);

/// This host's.
[[nodiscard]] std::string host_name();

/// CLI11 checks that turn our parsers' errors into usage errors.
[[nodiscard]] CLI::Validator rate_validator();
[[nodiscard]] CLI::Validator bytes_validator();
[[nodiscard]] CLI::Validator endpoint_validator();
[[nodiscard]] CLI::Validator node_name_validator();
[[nodiscard]] CLI::Validator topology_validator();

}  // namespace weightcast
