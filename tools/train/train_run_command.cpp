#include "tools/shell/configured_command.h"
#include "tools/train/train_commands.h"
#include "trainer/config/config.h"
#if defined(WEIGHTCAST_TORCH)
#include <fmt/format.h>

#include "base/files/descriptors.h"
#include "base/files/posix_file_system.h"
#include "base/process.h"
#include "tools/observe/metrics_port.h"
#include "tools/shell/operator_options.h"
#include "tools/shell/stop_signal.h"
#include "trainer/loop/learner.h"
#endif

namespace weightcast {
namespace {

#if defined(WEIGHTCAST_TORCH)
Status train(const LearnerConfig& config, const ReadSettingsAgain<LearnerConfig>&) {
  const LogStyle log{config.operators.log_format, "learner"};
  watch_signals(AtHangup::kStops, [log](const std::string& line) { write_log_line(log, "warning", line); });
  const std::atomic<bool>& stop = stop_on_signals();
  WC_TRY(raise_descriptor_limit());  // before the files that stay open are counted
  PosixFileSystem files;
  // Ranks on one host may share a configuration: rank 0 knows what there is to tell.
  const auto warn = [&log](const std::string& why) { write_log_line(log, "warning", why); };
  std::vector<std::string> revocations;
  if (!config.publish_state.empty()) revocations.push_back(config.publish_state);
  WC_ASSIGN(const auto http, operator_options(config.operators, config.rollout_keys, std::move(revocations), warn));
  WC_ASSIGN(const std::unique_ptr<Learner> learner, Learner::make(files, config));
  std::unique_ptr<OperatorPort> port;
  if (http && config.rank == 0) {
    WC_ASSIGN(port, start_metrics_port(*http, [&learner](const HttpRequest&, HttpResponder responder) {
                MetricsText text;
                add_build_info(text, WEIGHTCAST_VERSION, "learner");
                learner->add_metrics(text);
                responder.send(metrics_response(text));
              }));
    WC_TRY(write_http_address(*port, config.output_dir));
    write_log_line(log, "info", fmt::format("operators look at {}", port->url()));
  }
  return learner->run(stop);
}
#else
Status train(const LearnerConfig&, const ReadSettingsAgain<LearnerConfig>&) {
  return fail(Errc::kUnsupported, Op::kConfigure, "this build has no LibTorch, so it cannot train");
}
#endif

}  // namespace

void add_train_run_command(const Commands& commands) {
  add_configured_command<LearnerConfig>(commands, {"run", "Train, or go on from the last checkpoint in output_dir",
                                                   "docs/SETTINGS.md", config_fields, make_config, train});
}

}  // namespace weightcast
