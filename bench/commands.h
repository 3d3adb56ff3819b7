#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

// Each adds one command to weightcast-bench, whose description says what it measures. A command prints a line for each
// case as it is measured. Its error becomes one line on stderr and exit status 1.

void add_broadcast_command(CLI::App& app);
void add_codec_command(CLI::App& app);
void add_decode_command(CLI::App& app);
void add_delta_command(CLI::App& app);
void add_faults_command(CLI::App& app);
void add_flood_command(CLI::App& app);
void add_http_command(CLI::App& app);
void add_idle_command(CLI::App& app);
void add_joins_command(CLI::App& app);
void add_install_command(CLI::App& app);
void add_listed_command(CLI::App& app);
void add_optimiser_command(CLI::App& app);
void add_paper_command(CLI::App& app);
void add_patch_command(CLI::App& app);
void add_predict_command(CLI::App& app);
void add_packed_command(CLI::App& app);
void add_publish_command(CLI::App& app);
void add_relay_command(CLI::App& app);
void add_rollout_command(CLI::App& app);
void add_threads_command(CLI::App& app);

}  // namespace weightcast::bench
