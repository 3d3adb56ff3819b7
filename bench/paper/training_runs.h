#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "bench/paper/training_suite.h"
#include "trainer/loop/learner.h"

namespace weightcast::bench {

/// Makes one run of the learner. `task`: see Learner::make(). Errors: those of make_config() and of the learner.
[[nodiscard]] Status learn(FileSystem& files, const std::vector<Setting>& settings, const StepObserver& observer,
                           std::shared_ptr<const Task> task = {});

/// A column of a run, and the learner's metric that it has.
struct MetricColumn {
  const char* column;
  const char* metric;
};
/// Adds an entry to each of these columns; NaN without the metric.
void append_metrics(TrainingRun& run, std::span<const MetricColumn> columns, const Metrics& metrics);

/// Makes the suite's runs one after the other. Each that is done lies in DIRECTORY/DIGEST.json, and is taken from there
/// the next time: a suite that was interrupted goes on with the run that it was in. `told` gets each run. `programs`:
/// the directory of those that cases with workers and a suite's task_program take.
/// Errors: those of the configuration, of the learner and of the disk; those of LoopProcesses; kClosed where a worker
/// ended before its run, which names it and says what its log says last, or where somebody stopped the bench.
[[nodiscard]] Result<std::vector<TrainingRun>> run_training_suite(const TrainingSuite& suite,
                                                                  const std::filesystem::path& directory,
                                                                  const std::filesystem::path& programs,
                                                                  const std::function<void(const TrainingRun&)>& told);

}  // namespace weightcast::bench
