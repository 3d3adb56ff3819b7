#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tools/config_file.h"
#include "tools/train_commands.h"
#include "trainer/learner/config.h"
#if defined(WEIGHTCAST_TORCH)
#include "base/posix_file_system.h"
#include "trainer/learner/learner.h"
#endif

namespace weightcast {
namespace {

struct RunFlags {
  std::string config;
  std::vector<std::string> settings;
  bool print_config = false;
  bool list_keys = false;
};

#if defined(WEIGHTCAST_TORCH)
std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

Status train(const LearnerConfig& config) {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second signal ends the process at once
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  PosixFileSystem files;
  WC_ASSIGN(const std::unique_ptr<Learner> learner, Learner::make(files, config));
  return learner->run(stop_requested);
}
#else
Status train(const LearnerConfig&) {
  return fail(Errc::kUnsupported, Op::kConfigure, "this build has no LibTorch, so it cannot train");
}
#endif

Status run(const RunFlags& flags) {
  if (flags.list_keys) {
    std::fputs(config_table().c_str(), stdout);
    return {};
  }
  std::vector<Setting> settings;
  if (!flags.config.empty()) {
    WC_ASSIGN(settings, read_config_items(flags.config));
  }
  for (const std::string& text : flags.settings) {
    WC_ASSIGN(Setting setting, parse_setting(text));
    settings.push_back(std::move(setting));
  }
  WC_ASSIGN(const LearnerConfig config, make_config(settings));
  if (flags.print_config) {
    std::fputs(config_text(config).c_str(), stdout);
    return {};
  }
  return train(config);
}

}  // namespace

void add_train_run_command(CLI::App& app, CommandBody& selected) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Train, or go on from the last checkpoint in output_dir");
  command->add_option("--config", flags->config, "A TOML file; docs/TRAINING.md lists its keys");
  command->add_option("--set", flags->settings, "KEY=VALUE, which replaces the file's; may be given several times");
  command->add_flag("--print-config", flags->print_config, "Print the configuration as TOML, and do nothing else");
  command->add_flag("--list-keys", flags->list_keys, "Print all keys with default, values and meaning");
  command->callback([flags, &selected] { selected = [flags] { return run(*flags); }; });
}

}  // namespace weightcast
