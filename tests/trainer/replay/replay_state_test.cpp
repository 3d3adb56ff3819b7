#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/trainer/replay/replay_fixture.h"

namespace weightcast {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

ReplayBuffer filled(Instant now) {
  ReplayBuffer buffer = ReplayBuffer::make(replay_options(), replay_rules()).value();
  for (std::uint64_t v = 1; v <= 5; ++v) {
    buffer.handle_step(Version{v});
    buffer.handle_published(Version{v});
  }
  (void)buffer.start(now, "late", 0, 2);
  for (std::uint64_t i = 0; i < 5; ++i) {
    Trajectory one = rollout("w", 2 * i, "group" + std::to_string(i / 2), 5, 0.1 * static_cast<double>(i));
    one.logprobs = {-0.1F};
    one.metadata = {{"answer", "\"42\""}};
    (void)buffer.handle_trajectory(now, std::move(one));
  }
  (void)buffer.handle_trajectory(now, rollout("w", 99, "old", 1));
  return buffer;
}

TEST(ReplayState, ComesBackAsItWas) {
  const Instant now{1h};
  const ReplayBuffer buffer = filled(now);
  auto restored = ReplayBuffer::restore(replay_options(), replay_rules(), buffer.save(now), now);
  ASSERT_TRUE(restored.has_value()) << restored.error().message();
  EXPECT_EQ(restored->save(now), buffer.save(now));
  EXPECT_EQ(restored->stats(), buffer.stats());
  EXPECT_EQ(restored->buffered_bytes(), buffer.buffered_bytes());
  EXPECT_EQ(restored->poll_deadline(), buffer.poll_deadline());
  ReplayBuffer copy = buffer;
  const auto batch = restored->take_batch(), expected = copy.take_batch();
  ASSERT_TRUE(batch && expected);
  for (std::size_t i = 0; i < batch->size(); ++i) EXPECT_EQ((*batch)[i].rollouts, (*expected)[i].rollouts);
}

TEST(ReplayState, KeepsSpansOfTimeAcrossARestart) {
  const ReplayBuffer buffer = filled(Instant{1h});
  const auto restored =
      ReplayBuffer::restore(replay_options(), replay_rules(), buffer.save(Instant{1h}), Instant{5min});
  EXPECT_EQ(*restored->poll_deadline() - Instant{5min}, *buffer.poll_deadline() - Instant{1h});
}

TEST(ReplayState, StillKnowsWhatArrived) {
  const Instant now{};
  auto restored = ReplayBuffer::restore(replay_options(), replay_rules(), filled(now).save(now), now).value();
  EXPECT_EQ(restored.handle_trajectory(now, rollout("w", 4, "group9", 5)).admission, Admission::kDuplicate);
  EXPECT_EQ(restored.handle_trajectory(now, rollout("w", 5, "group0", 5)).reason, "group_closed");
}

TEST(ReplayState, NamesWhatIsWrong) {
  const Instant now{};
  const auto json = nlohmann::json::parse(filled(now).save(now));
  for (const auto& [name, value] : json.items()) {
    auto without = json;
    without.erase(name);
    auto other = json;
    other[name] = "text";
    for (const auto& bad : {without, other}) {
      const auto restored = ReplayBuffer::restore(replay_options(), replay_rules(), bad.dump(), now);
      ASSERT_FALSE(restored.has_value()) << name;
      EXPECT_EQ(restored.error().code, Errc::kCorrupt);
    }
    EXPECT_THAT(ReplayBuffer::restore(replay_options(), replay_rules(), without.dump(), now).error().message(),
                HasSubstr(name));
  }
  EXPECT_FALSE(ReplayBuffer::restore(replay_options(), replay_rules(), "{", now).has_value());
}

}  // namespace
}  // namespace weightcast
