#include "base/files/posix_file_system.h"
#include "base/process.h"
#include "tools/observe/metrics_port.h"
#include "tools/shell/configured_command.h"
#include "tools/shell/operator_options.h"
#include "tools/shell/stop_signal.h"
#include "tools/worker/worker_commands.h"
#include "worker/loop/worker.h"

namespace weightcast {
namespace {

Status run(const RolloutWorkerConfig& config, const ReadSettingsAgain<RolloutWorkerConfig>&) {
  const LogStyle log{config.operators.log_format, "engine"};
  watch_signals(AtHangup::kStops, [log](const std::string& line) { write_log_line(log, "warning", line); });
  PosixFileSystem files;
  const auto at = [&log](std::string_view level) {
    return [&log, level](const std::string& line) { write_log_line(log, level, line); };
  };
  const WorkerLog say{at("info"), at("warning")};
  WC_ASSIGN(const auto http,
            operator_options(config.operators, config.learner.trust.keys, {config.state_dir}, say.warn));
  WorkerMetrics metrics;
  std::unique_ptr<OperatorPort> port;
  if (http) {
    WC_ASSIGN(port, start_metrics_port(*http, [&metrics](const HttpRequest&, HttpResponder responder) {
                MetricsText text;
                add_build_info(text, WEIGHTCAST_VERSION, "engine");
                metrics.write(text);
                responder.send(metrics_response(text));
              }));
    if (!config.http_dir.empty()) {
      WC_TRY(make_directories(files, config.http_dir));
      WC_TRY(write_http_address(*port, config.http_dir));
    }
    say.info("operators look at " + port->url());
  }
  return run_worker(files, config, stop_on_signals(), say, metrics);
}

}  // namespace

void add_worker_run_command(const Commands& commands) {
  add_configured_command<RolloutWorkerConfig>(
      commands, {"run", "Generate rollouts for a learner, under the versions that arrive", "docs/SETTINGS.md",
                 worker_fields, make_worker_config, run});
}

}  // namespace weightcast
