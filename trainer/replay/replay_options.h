#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "base/settings/words.h"
#include "base/time.h"
#include "trainer/tasks/run_description.h"
#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {

/// Which complete groups a batch takes first. Age is that of a group's oldest version, then of its completion.
/// kUniform draws by the seed.
enum class SampleOrder { kOldestFirst, kNewestFirst, kUniform };
constexpr Words<3> words_of(SampleOrder) { return {"oldest_first", "newest_first", "uniform"}; }

struct ReplayOptions : GroupSettings {
  /// Groups that are leased beyond those of async_generation_ratio: they stand in for groups that are filtered, slow or
  /// lost.
  std::uint64_t max_additional_running_prompts = 0;
  /// The same, counted with those of a batch; 0: none. The larger of both holds.
  std::uint64_t num_env_groups = 0;
  /// Admit what was leased to its worker, and nothing else. false: sources without leases, such as files.
  bool leased_only = false;
  SampleOrder order = SampleOrder::kOldestFirst;
  std::uint64_t rollouts_max = 4096;
  std::uint64_t bytes_max = std::uint64_t{1} << 30;
  Duration group_time_max = std::chrono::minutes(30);  ///< from a group's first rollout until it is given up
  Duration lease_time_max = std::chrono::minutes(30);  ///< from a lease until it is taken for lost
  std::uint64_t closed_groups_max = 1'000'000;
};

}  // namespace weightcast
