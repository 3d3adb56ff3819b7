#include "base/process.h"
#include "tools/train/train_commands.h"

int main(int argc, char** argv) {
  weightcast::set_up_process();
  CLI::App app{"weightcast-train: the learner", "weightcast-train"};
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", WEIGHTCAST_VERSION);
  weightcast::CommandBody selected;
  const weightcast::Commands commands{app, selected};
  weightcast::add_train_run_command(commands);
  weightcast::add_train_plan_command(commands);
  weightcast::add_train_plot_command(commands);
  weightcast::add_check_commands(commands);
  weightcast::add_model_command(commands);
#ifdef WEIGHTCAST_TORCH
  weightcast::add_train_calibrate_command(commands);
  weightcast::add_merge_command(commands);
#endif
  return weightcast::run_commands(app, selected, argc, argv);
}
