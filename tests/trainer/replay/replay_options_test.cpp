#include "trainer/replay/replay_options.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/trainer/replay/replay_fixture.h"

namespace weightcast {
namespace {

TEST(ReplayOptions, RefusesEachOutOfRangeByName) {
  using O = ReplayOptions;
  const std::vector<std::pair<std::string, std::function<void(O&)>>> wrong = {
      {"group_size is 0; it is 1 to", [](O& o) { o.group_size = 0; }},
      {"rollout_batch_size is 5; it is a multiple of group_size (2)", [](O& o) { o.rollout_batch_size = 5; }},
      {"rollout_batch_size is 0", [](O& o) { o.rollout_batch_size = 0; }},
      {"async_generation_ratio is -1", [](O& o) { o.async_generation_ratio = -1; }},
      {"async_generation_ratio is nan",
       [](O& o) { o.async_generation_ratio = std::numeric_limits<double>::quiet_NaN(); }},
      {"async_generation_ratio is 1001", [](O& o) { o.async_generation_ratio = 1001; }},
      {"rollouts_max is 3; it is at least rollout_batch_size (4)", [](O& o) { o.rollouts_max = 3; }},
      {"bytes_max is 1000", [](O& o) { o.bytes_max = 1000; }},
      {"group_time_max is 0", [](O& o) { o.group_time_max = Duration(0); }},
      {"lease_time_max is 0", [](O& o) { o.lease_time_max = Duration(-1); }},
      {"num_env_groups is 100000001", [](O& o) { o.num_env_groups = 100'000'001; }},
      {"group_size_redundancy is 100000001", [](O& o) { o.group_size_redundancy = 100'000'001; }},
      {"max_additional_running_prompts is 100000001", [](O& o) { o.max_additional_running_prompts = 100'000'001; }},
      {"workers_max is 0", [](O& o) { o.workers_max = 0; }},
      {"gaps_per_worker_max is 0", [](O& o) { o.gaps_per_worker_max = 0; }},
      {"closed_groups_max is 0", [](O& o) { o.closed_groups_max = 0; }},
  };
  EXPECT_TRUE(validate(replay_options(), replay_rules()).has_value());
  for (const auto& [text, make] : wrong) {
    ReplayOptions options = replay_options();
    make(options);
    const Status status = validate(options, replay_rules());
    ASSERT_FALSE(status.has_value()) << text;
    EXPECT_EQ(status.error().detail.substr(0, text.size()), text);
    EXPECT_FALSE(ReplayBuffer::make(options, replay_rules()).has_value());
  }
}

}  // namespace
}  // namespace weightcast
