#include "base/process.h"
#include "tools/command.h"

int main(int argc, char** argv) {
  using namespace weightcast;
  set_up_process();
  CLI::App app{"weightcast: a trainer's weights to every inference worker, quickly, exactly, safely", "weightcast"};
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", WEIGHTCAST_VERSION);
  CommandBody selected;
  const Commands commands{app, selected};
  for (const auto add :
       {add_daemon_command, add_doctor_command, add_publish_command, add_status_command, add_history_command,
        add_trace_command, add_versions_command, add_path_command, add_exec_command, add_ready_command,
        add_reload_command, add_remove_command, add_serve_commands, add_patch_command, add_simulate_command,
        add_keys_command, add_verify_command, add_archive_commands}) {
    add(commands);
  }
  return run_commands(app, selected, argc, argv);
}
