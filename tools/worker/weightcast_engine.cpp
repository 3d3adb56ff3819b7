#include "base/process.h"
#include "tools/worker/worker_commands.h"

int main(int argc, char** argv) {
  weightcast::set_up_process();
  CLI::App app{"weightcast-engine: the inference engine", "weightcast-engine"};
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", WEIGHTCAST_VERSION);
  weightcast::CommandBody selected;
  const weightcast::Commands commands{app, selected};
  weightcast::add_worker_run_command(commands);
  weightcast::add_worker_generate_command(commands);
  weightcast::add_worker_serve_command(commands);
  return weightcast::run_commands(app, selected, argc, argv);
}
