#include "tools/configured_command.h"
#include "tools/train_commands.h"
#include "trainer/learner/config.h"
#if defined(WEIGHTCAST_TORCH)
#include "base/descriptors.h"
#include "base/posix_file_system.h"
#include "tools/stop_signal.h"
#include "trainer/learner/learner.h"
#endif

namespace weightcast {
namespace {

#if defined(WEIGHTCAST_TORCH)
Status train(const LearnerConfig& config, const LogStyle& log) {
  const std::atomic<bool>& stop = stop_on_signals();
  WC_TRY(raise_descriptor_limit());  // before the files that stay open are counted
  PosixFileSystem files;
  WC_ASSIGN(const std::unique_ptr<Learner> learner, Learner::make(files, config, log));
  return learner->run(stop);
}
#else
Status train(const LearnerConfig&, const LogStyle&) {
  return fail(Errc::kUnsupported, Op::kConfigure, "this build has no LibTorch, so it cannot train");
}
#endif

}  // namespace

void add_train_run_command(CLI::App& app, CommandBody& selected) {
  add_configured_command<LearnerConfig>(app, selected, "Train, or go on from the last checkpoint in output_dir",
                                        "docs/TRAINING.md", {make_config, config_table, config_text, "learner", train});
}

}  // namespace weightcast
