#pragma once

#include <atomic>

#include "base/files/file_system.h"
#include "base/result.h"
#include "worker/loop/worker_config.h"
#include "worker/loop/worker_log.h"
#include "worker/loop/worker_metrics.h"

namespace weightcast {

/// Generates rollouts for a learner until it says that its run has ended, or until `stop`. Waits for the learner and
/// for a first version as long as it takes. When the learner goes on with another run, so does the worker. Errors:
/// those of the configuration, of LearnerClient::make(), of RolloutLoop::make(), and a model that differs from the
/// learner's. `metrics` is told five times a second what the worker is at.
[[nodiscard]] Status run_worker(FileSystem& files, const RolloutWorkerConfig& config, const std::atomic<bool>& stop,
                                const WorkerLog& log, WorkerMetrics& metrics);

}  // namespace weightcast
