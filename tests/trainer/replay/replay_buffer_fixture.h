#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/replay/replay_fixture.h"
#include "trainer/replay/replay_buffer.h"

namespace weightcast {

/// A buffer of groups of two, whose learner has done ten steps.
class ReplayBufferTest : public testing::Test {
 protected:
  void make(std::uint64_t learner = 10) {
    buffer_.emplace(options_, replay_rules());
    for (std::uint64_t v = 1; v <= learner; ++v) step(v);
  }
  void step(std::uint64_t version) {
    buffer_->handle_step(Version{version});
    buffer_->handle_published(Version{version});
  }
  /// The verdict on it.
  std::string came(Trajectory trajectory) {
    const Arrival arrival = buffer_->handle_trajectory(now_, std::move(trajectory));
    check_accounts(*buffer_);
    return verdict(arrival);
  }
  std::string arrive(const std::string& group, std::uint64_t version, double reward = 0) {
    return came(rollout("w", next_++, group, version, reward));
  }
  void arrive_group(const std::string& group, std::uint64_t version) {
    ASSERT_EQ(arrive(group, version), "admitted");
    ASSERT_EQ(arrive(group, version), "admitted");
  }
  /// Leases up to `groups` groups of two; returns how many.
  std::uint64_t start(const std::string& worker, std::uint64_t first, std::uint64_t groups) {
    const std::uint64_t granted = buffer_->leasable(now_, worker, groups);
    for (std::uint64_t i = 0; i < granted; ++i) buffer_->lease(now_, worker, next_group_++, first + 2 * i, 2);
    return granted;
  }
  std::vector<std::string> take() {
    std::vector<std::string> tags;
    if (const auto batch = buffer_->take_batch(now_)) {
      for (const RolloutGroup& group : *batch) {
        EXPECT_EQ(group.rollouts.size(), 2u);
        tags.push_back(group.tag);
      }
    }
    check_accounts(*buffer_);
    return tags;
  }

  ReplayOptions options_ = replay_options();
  std::optional<ReplayBuffer> buffer_;
  Instant now_{};
  std::uint64_t next_ = 0;
  std::uint64_t next_group_ = 0;
};

using Tags = std::vector<std::string>;

}  // namespace weightcast
