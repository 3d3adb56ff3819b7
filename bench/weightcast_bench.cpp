#include <CLI/CLI.hpp>

#include "bench/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"weightcast-bench: what weightcast does, measured on real processes and real bytes", "weightcast-bench"};
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  weightcast::bench::add_broadcast_command(app);
  weightcast::bench::add_relay_command(app);
  weightcast::bench::add_rollout_command(app);
  weightcast::bench::add_faults_command(app);
  weightcast::bench::add_predict_command(app);
  weightcast::bench::add_http_command(app);
  weightcast::bench::add_idle_command(app);
  weightcast::bench::add_joins_command(app);
  weightcast::bench::add_flood_command(app);
  weightcast::bench::add_publish_command(app);
  weightcast::bench::add_threads_command(app);
  weightcast::bench::add_delta_command(app);
  weightcast::bench::add_optimiser_command(app);
  weightcast::bench::add_decode_command(app);
  weightcast::bench::add_install_command(app);
  weightcast::bench::add_paper_command(app);
  weightcast::bench::add_patch_command(app);
  weightcast::bench::add_codec_command(app);
  weightcast::bench::add_listed_command(app);
  weightcast::bench::add_packed_command(app);
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
