#include "base/posix_file_system.h"
#include "tools/configured_command.h"
#include "tools/stop_signal.h"
#include "tools/worker_commands.h"
#include "worker/loop/worker.h"

namespace weightcast {
namespace {

Status run(const RolloutWorkerConfig& config, const LogStyle& log) {
  PosixFileSystem files;
  const auto at = [&log](std::string_view level) {
    return [&log, level](const std::string& line) { write_log_line(log, level, line); };
  };
  return run_worker(files, config, stop_on_signals(), {at("info"), at("warning")});
}

}  // namespace

void add_worker_run_command(CLI::App& app, CommandBody& selected) {
  add_configured_command<RolloutWorkerConfig>(
      app, selected, "Generate rollouts for a learner, under the versions that arrive", "docs/WORKERS.md",
      {make_worker_config, worker_config_table, worker_config_text, "engine", run});
}

}  // namespace weightcast
