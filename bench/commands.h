#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

// Each adds one command to weightcast-bench. A command prints a line for each case as it is measured. Its error becomes
// one line on stderr and exit status 1.

/// Time until every worker of a fleet of real processes has installed a snapshot.
void add_broadcast_command(CLI::App& app);
/// Sizes and speeds of patch codecs.
void add_codec_command(CLI::App& app);
/// Decoding steps of the engine against memory and against products.
void add_decode_command(CLI::App& app);
/// What a step costs that is published as a list of changes.
void add_delta_command(CLI::App& app);
/// Broadcasts with a fault in the middle, each against one without.
void add_faults_command(CLI::App& app);
/// Publications beside which strangers trouble the origin.
void add_flood_command(CLI::App& app);
/// Answers to /health beside many clients, slow ones among them.
void add_http_command(CLI::App& app);
/// The cost of idle workers, and the time to serve one more.
void add_idle_command(CLI::App& app);
/// Many workers that join at once.
void add_joins_command(CLI::App& app);
/// How long the engine pauses for a version.
void add_install_command(CLI::App& app);
/// Lists of changes beside the modelled form of patches.
void add_listed_command(CLI::App& app);
/// AdamW against a plain loop over the same memory.
void add_optimiser_command(CLI::App& app);
/// Tables and figures of papers by simulation.
void add_paper_command(CLI::App& app);
/// Consecutive versions, sent as patches.
void add_patch_command(CLI::App& app);
/// Simulated broadcasts against measured ones.
void add_predict_command(CLI::App& app);
/// Sizes and speeds of packed snapshots.
void add_packed_command(CLI::App& app);
/// How long publishing from memory blocks the trainer.
void add_publish_command(CLI::App& app);
/// Throughput of one store-and-forward hop without limits.
void add_relay_command(CLI::App& app);
/// The rollout scheduler in simulated time.
void add_rollout_command(CLI::App& app);
/// What is proportional to the model, by one thread and by more.
void add_threads_command(CLI::App& app);

}  // namespace weightcast::bench
