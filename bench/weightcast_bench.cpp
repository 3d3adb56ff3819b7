#include <CLI/CLI.hpp>

#include "base/process.h"
#include "bench/commands.h"

int main(int argc, char** argv) {
  using namespace weightcast::bench;
  weightcast::set_up_process();
  CLI::App app{"weightcast-bench: what weightcast does, measured on real processes and real bytes", "weightcast-bench"};
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  for (const auto add :
       {add_broadcast_command, add_relay_command, add_rollout_command,   add_faults_command, add_predict_command,
        add_http_command,      add_idle_command,  add_joins_command,     add_flood_command,  add_publish_command,
        add_threads_command,   add_delta_command, add_optimiser_command, add_decode_command, add_install_command,
        add_paper_command,     add_patch_command, add_codec_command,     add_listed_command, add_packed_command}) {
    add(app);
  }
  for (CLI::App* command : app.get_subcommands({})) {
    for (CLI::Option* option : command->get_options()) {
      if (option->get_default_str() == "[]") option->default_str("");  // an empty list is no default to tell of
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::RuntimeError& failed) {  // a bench failed, and has said so
    return failed.get_exit_code();
  } catch (const CLI::ParseError& usage) {
    app.exit(usage);
    return 2;
  }
  return 0;
}
