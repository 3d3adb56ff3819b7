// The worker's client and the learner's port together, over restarts of both.
#include <thread>

#include "base/steady_clock.h"
#include "tests/eventually.h"
#include "tests/trainer/intake/intake_fixture.h"
#include "worker/learner/learner_client.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;

class LearnerClientTest : public IntakeTest {
 protected:
  /// The worker's process begins.
  void begin_worker(std::uint64_t waiting_bytes_max = 256 * kMiB) {
    worker_.reset();
    auto made = LearnerClient::make({.learner = endpoint_.host.empty() ? intake_->endpoint() : endpoint_,
                                     .trust = {},
                                     .name = "w",
                                     .waiting_bytes_max = waiting_bytes_max,
                                     .call_time_max = kLimit});
    ASSERT_TRUE(made.has_value()) << made.error().message();
    worker_ = std::move(*made);
  }
  /// A learner, and a worker that knows its run.
  void begin(RolloutIntake::Options options = {}) {
    open(std::move(options));
    begin_worker();
    ASSERT_TRUE(worker_->run().has_value());
  }
  void send(std::uint64_t sequence, const std::string& group, std::uint64_t version = 1) {
    const Status sent = worker_->send(rollout("", sequence, group, version));
    ASSERT_TRUE(sent.has_value()) << sent.error().message();
  }
  void listen_at(const Endpoint& address) {
    intake_ = std::make_unique<RolloutIntake>(
        files_, RolloutIntake::Options{.listen = address, .trust = {}, .directory = temp_.file(".")}, buffer_);
  }
  /// The learner, which was killed, goes on from `checkpoint`, at the same address.
  void restart_learner(const std::string& checkpoint, const Endpoint& before) {
    buffer_.set(ReplayBuffer::restore(replay_options(), replay_rules(), checkpoint, steady_now()).value());
    listen_at(before);
    WC_CHECK(intake_->restore(source_).has_value());
    RunDescription run;
    run.group_size = replay_options().group_size;
    const Status opened = intake_->open(run, true);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
  }
  std::string checkpoint() {
    source_ = intake_->save();
    return buffer_->save(steady_now());
  }

  Endpoint endpoint_;
  std::string source_;  // of the last checkpoint
  std::unique_ptr<LearnerClient> worker_;
};

TEST_F(LearnerClientTest, BringsRolloutsToTheLearner) {
  open();
  begin_worker();
  EXPECT_FALSE(worker_->send(rollout("", 0, "g", 1)).has_value()) << "it does not know the run";
  ASSERT_TRUE(worker_->run().has_value());
  const StartedGroups started = worker_->start(2, 2).value();
  ASSERT_EQ(started.groups.size(), 2u);
  EXPECT_EQ(started.learner.version, Version{1});
  for (const StartedGroup& group : started.groups) {
    for (std::uint64_t i = 0; i < 2; ++i) send(group.first_sequence + i, "g" + std::to_string(group.number));
  }
  EXPECT_TRUE(worker_->drain(kLimit));
  EXPECT_EQ(buffer_->stats().admitted, 4u);
  EXPECT_EQ(buffer_->under_way(), 0u);
  EXPECT_EQ(worker_->stats().acknowledged, 4u);
  EXPECT_EQ(worker_->stats().waiting, 0u);
  EXPECT_EQ(worker_->stats().waiting_bytes, 0u);
}

TEST_F(LearnerClientTest, ALearnerThatGoesOnFromACheckpointHasTheRestMadeAgain) {
  begin();
  const StartedGroups first = worker_->start(2, 2).value();
  ASSERT_EQ(first.groups.size(), 2u);
  const std::string saved = checkpoint();
  const Endpoint address = intake_->endpoint();
  intake_.reset();
  send(first.groups[0].first_sequence, "g0");
  EXPECT_TRUE(eventually([&] { return !worker_->stats().last_error.empty(); }));
  restart_learner(saved, address);
  std::optional<StartedGroups> again;
  ASSERT_TRUE(eventually([&] {
    Result<StartedGroups> started = worker_->start(2, 2);
    if (started.has_value()) again = *std::move(started);
    return started.has_value();
  }));
  EXPECT_TRUE(again->learner.has_restarted);
  ASSERT_EQ(again->groups.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again->groups[i].number, first.groups[i].number);
    EXPECT_GT(again->groups[i].first_sequence, first.groups[1].first_sequence);
  }
  EXPECT_TRUE(worker_->drain(kLimit)) << "what waited is of no use";
  EXPECT_EQ(buffer_->stats().admitted, 0u);
  EXPECT_FALSE(worker_->heartbeat({})->has_restarted) << "said once";
}

TEST_F(LearnerClientTest, HoldsRolloutsWhileTheLearnerDoesNotAnswer) {
  begin();
  {
    const auto held = buffer_.lock();
    for (std::uint64_t i = 0; i < 4; ++i) send(i, "g" + std::to_string(i / 2));
    EXPECT_FALSE(worker_->drain(milliseconds(50)));
    EXPECT_EQ(worker_->stats().waiting, 4u);
  }
  EXPECT_TRUE(worker_->drain(kLimit));
  EXPECT_EQ(buffer_->stats().admitted, 4u);
  EXPECT_EQ(buffer_->stats().duplicates, 0u);
}

TEST_F(LearnerClientTest, NeverNumbersTwoRolloutsAlike) {
  open();
  std::uint64_t next = 0;
  for (int life = 0; life < 3; ++life) {
    begin_worker();
    ASSERT_TRUE(worker_->run().has_value());
    const StartedGroups started = worker_->start(1, 2).value();
    ASSERT_EQ(started.groups.size(), 1u);
    EXPECT_GE(started.groups[0].first_sequence, next);
    next = started.groups[0].first_sequence + 2;
  }
}

TEST_F(LearnerClientTest, WaitsWhileTheBufferIsFull) {
  begin();
  for (std::uint64_t i = 0; i < 12; ++i) send(i, "g" + std::to_string(i / 2));
  ASSERT_TRUE(eventually([&] { return buffer_->stats().full > 0; }));
  EXPECT_EQ(buffer_->buffered(), 8u);
  ASSERT_TRUE(buffer_->take_batch(steady_now()).has_value());
  EXPECT_TRUE(worker_->drain(kLimit));
  EXPECT_EQ(buffer_->stats().admitted, 12u);
}

TEST_F(LearnerClientTest, DropsNothingThatTheLearnerCouldTake) {
  open();
  begin_worker(300);
  ASSERT_TRUE(worker_->run().has_value());
  intake_.reset();
  Status sent;
  std::uint64_t count = 0;
  while ((sent = worker_->send(rollout("", count, "g" + std::to_string(count / 2), 1))).has_value()) ++count;
  EXPECT_EQ(sent.error().code, Errc::kNoSpace);
  EXPECT_GT(count, 2u);
  EXPECT_EQ(worker_->stats().waiting, count);
  EXPECT_EQ(worker_->stats().dropped, 0u);
}

TEST_F(LearnerClientTest, LeavesAnotherRunAlone) {
  open();
  begin_worker();
  const std::string first = worker_->run().value().run_id;
  send(0, "g");
  ASSERT_TRUE(worker_->drain(kLimit));
  const Endpoint address = intake_->endpoint();
  intake_.reset();
  buffer_.set(ReplayBuffer(replay_options(), replay_rules()));
  buffer_->handle_step(Version{1});
  buffer_->handle_published(Version{1});
  listen_at(address);
  ASSERT_TRUE(intake_->open({}, false).has_value());
  const auto started = worker_->start(1, 2);
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, Errc::kWrongBase) << started.error().message();
  EXPECT_EQ(worker_->run().error().code, Errc::kWrongBase);
  EXPECT_EQ(buffer_->stats().admitted, 0u);
  endpoint_ = address;
  begin_worker();
  EXPECT_NE(worker_->run().value().run_id, first);
  send(1, "h");
  ASSERT_TRUE(worker_->drain(kLimit));
  EXPECT_EQ(buffer_->stats().admitted, 1u);
}

TEST_F(LearnerClientTest, AbandonedRolloutsMakeRoomForOthers) {
  begin();
  const StartedGroups started = worker_->start(1, 2).value();
  const std::uint64_t first = started.groups[0].first_sequence;
  worker_->abandon({first, first + 1});
  ASSERT_TRUE(worker_->heartbeat({}).has_value());
  EXPECT_EQ(buffer_->under_way(), 0u);
}

TEST_F(LearnerClientTest, SaysThatTheLearnerDoesNotAnswer) {
  open();
  begin_worker();
  intake_.reset();
  const auto run = worker_->run();
  ASSERT_FALSE(run.has_value());
  EXPECT_EQ(run.error().code, Errc::kIo);
}

}  // namespace
}  // namespace weightcast
