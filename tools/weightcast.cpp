#include "tools/command.h"

int main(int argc, char** argv) {
  CLI::App app{"weightcast: a trainer's weights to every inference worker, quickly, exactly, safely", "weightcast"};
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", WEIGHTCAST_VERSION);
  weightcast::CommandBody selected;
  const weightcast::Commands commands{app, selected};
  weightcast::add_daemon_command(commands);
  weightcast::add_doctor_command(commands);
  weightcast::add_publish_command(commands);
  weightcast::add_status_command(commands);
  weightcast::add_history_command(commands);
  weightcast::add_trace_command(commands);
  weightcast::add_versions_command(commands);
  weightcast::add_path_command(commands);
  weightcast::add_exec_command(commands);
  weightcast::add_ready_command(commands);
  weightcast::add_reload_command(commands);
  weightcast::add_serve_commands(commands);
  weightcast::add_patch_command(commands);
  weightcast::add_simulate_command(commands);
  weightcast::add_keys_command(commands);
  weightcast::add_verify_command(commands);
  weightcast::add_archive_commands(commands);
  return weightcast::run_commands(app, selected, argc, argv);
}
