#include "tools/configured_command.h"
#include "tools/train_commands.h"
#include "trainer/learner/config.h"
#include "trainer/learner/presets.h"
#if defined(WEIGHTCAST_TORCH)
#include "base/descriptors.h"
#include "base/posix_file_system.h"
#include "tools/stop_signal.h"
#include "trainer/learner/learner.h"
#endif

namespace weightcast {
namespace {

#if defined(WEIGHTCAST_TORCH)
Status train(const LearnerConfig& config) {
  const std::atomic<bool>& stop = stop_on_signals();
  WC_TRY(raise_descriptor_limit());  // before the files that stay open are counted
  PosixFileSystem files;
  WC_ASSIGN(const std::unique_ptr<Learner> learner, Learner::make(files, config));
  return learner->run(stop);
}
#else
Status train(const LearnerConfig&) {
  return fail(Errc::kUnsupported, Op::kConfigure, "this build has no LibTorch, so it cannot train");
}
#endif

}  // namespace

void add_recipe_options(CLI::App& command, std::vector<Setting>& into) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  command
      .add_option_function<std::string>(
          "--preset",
          [&into](const std::string& name) {
            into.push_back({"preset", name});
          },
          "A recipe, applied before all other settings")
      ->check(CLI::IsMember(names));
  command.add_option_function<std::vector<std::string>>(
      "--task-option",
      [&into](const std::vector<std::string>& options) {
        for (const std::string& option : options) {
          const Result<Setting> setting = parse_setting(option);
          if (!setting.has_value()) throw CLI::ValidationError("--task-option", setting.error().detail);
          into.push_back({"task_options." + setting->name, setting->value});
        }
      },
      "NAME=VALUE of the task; may be given several times");
}

void add_train_run_command(CLI::App& app, CommandBody& selected) {
  add_configured_command<LearnerConfig>(
      app, selected,
      {"run", "Train, or go on from the last checkpoint in output_dir", "docs/TRAINING.md", config_fields, make_config,
       config_text, train, add_recipe_options});
}

}  // namespace weightcast
