#include "worker/engine/engine_metrics.h"

namespace weightcast {

using enum MetricsText::Type;

void add_engine_metrics(MetricsText& text, const EngineStatus& status) {
  text.add("worker_running", kGauge, "Requests that decode.", std::uint64_t{status.running});
  text.add("worker_waiting", kGauge, "Requests that wait.", std::uint64_t{status.waiting});
  text.add("worker_cache_blocks", kGauge, "Blocks of keys and values.", std::uint64_t{status.blocks});
  text.add("worker_cache_blocks_used", kGauge, "Of these, in use.", std::uint64_t{status.blocks_used});
  text.add("worker_prompt_tokens_total", kCounter, "Prompt tokens computed.", status.prompt_tokens);
  text.add("worker_shared_tokens_total", kCounter, "Prompt tokens not computed, as another request had them.",
           status.shared_tokens);
  text.add("worker_answer_tokens_total", kCounter, "Tokens sampled.", status.answer_tokens);
  text.add("worker_preemptions_total", kCounter, "Requests that gave their blocks to others.", status.preemptions);
}

void add_version_metrics(MetricsText& text, Version version, const Installs& installs) {
  text.add("worker_weight_version", kGauge, "Version that answers are generated under; 0: none yet.", version.value);
  text.add("worker_versions_total", kCounter, "Versions taken into use.", installs.installed);
  text.add("worker_versions_refused_total", kCounter, "Versions that came and are not used.", installs.refused);
  text.family("worker_install_seconds_total", kCounter,
              "Time of the versions that came, by phase: prepare, while generation goes on; install, for which an "
              "engine's generation stands still; check, of a server's log-probabilities.");
  text.sample({{"phase", "prepare"}}, to_seconds(installs.prepare));
  text.sample({{"phase", "install"}}, to_seconds(installs.install));
}

}  // namespace weightcast
