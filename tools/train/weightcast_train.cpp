#include "tools/train/check_command.h"
#include "tools/train/model_command.h"
#include "tools/train/train_commands.h"

#ifdef WEIGHTCAST_TORCH
#include "tools/train/merge_command.h"
#endif

int main(int argc, char** argv) {
  CLI::App app{"weightcast-train: the learner", "weightcast-train"};
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", WEIGHTCAST_VERSION);
  weightcast::CommandBody selected;
  weightcast::add_train_run_command(app, selected);
  weightcast::add_train_plan_command(app, selected);
  weightcast::add_train_plot_command(app, selected);
  weightcast::add_check_commands(app, selected);
  weightcast::add_model_command(app, selected);
#ifdef WEIGHTCAST_TORCH
  weightcast::add_train_calibrate_command(app, selected);
  weightcast::add_merge_command(app, selected);
#endif
  return weightcast::run_commands(app, selected, argc, argv);
}
