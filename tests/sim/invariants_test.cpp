#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/options.h"

namespace weightcast::sim {
namespace {

// Workers with bugs. The simulation has to notice each, else nothing that it says is worth anything.

/// Believes every chunk: whatever came gets the digest that it should have had.
class SkipsVerification : public WorkerCore {
 public:
  using WorkerCore::WorkerCore;
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override {
    ChunkArrival believed = chunk;
    const Holding& holding = holdings().at(chunk.payload);
    const Manifest& manifest = holding.manifest();
    const std::uint32_t part = manifest.part_of(chunk.chunk);
    if (holding.part_known(part)) believed.digest = holding.part(part)[chunk.chunk.value % manifest.part_chunks];
    WorkerCore::handle_chunk(now, conn, believed);
  }
};

/// Sends a chunk on before it has looked at it.
class ForwardsBeforeVerifying : public WorkerCore {
 public:
  using WorkerCore::WorkerCore;
  void handle_accepted(Instant now, ConnId conn, std::string_view host,
                       const std::optional<PeerIdentity>& peer = std::nullopt) override {
    child_ = conn;
    WorkerCore::handle_accepted(now, conn, host, peer);
  }
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override {
    if (child_ != ConnId{}) early_.push(action::SendChunk{child_, chunk.payload, chunk.chunk});
    WorkerCore::handle_chunk(now, conn, chunk);
  }
  std::optional<Action> poll_action() override {
    if (auto early = early_.poll()) return early;
    return WorkerCore::poll_action();
  }

 private:
  ConnId child_{};
  ActionQueue early_;
};

/// Says that it has nothing, whatever it has.
class ForgetsWhatItHas : public WorkerCore {
 public:
  using WorkerCore::WorkerCore;
  std::optional<Action> poll_action() override {
    std::optional<Action> action = WorkerCore::poll_action();
    if (!action) return action;
    if (auto* send = std::get_if<action::Send>(&*action); send != nullptr && send->message.has_subscribe()) {
      send->message.mutable_subscribe()->clear_chunks_held();
    }
    return action;
  }
};

/// Never looks at the clock once it has joined: a silent parent is waited for until the end of time.
class NeverLosesPatience : public WorkerCore {
 public:
  using WorkerCore::WorkerCore;
  void handle_timeout(Instant) override {}
};

/// Installs at once.
class InstallsTooSoon : public WorkerCore {
 public:
  using WorkerCore::WorkerCore;
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override {
    soon_.push(action::FinishPayload{chunk.payload});
    WorkerCore::handle_chunk(now, conn, chunk);
  }
  std::optional<Action> poll_action() override {
    if (auto soon = soon_.poll()) return soon;
    return WorkerCore::poll_action();
  }

 private:
  ActionQueue soon_;
};

/// Welcomes every child, also those whose release does not know that.
class WelcomesAll : public WorkerCore {
 public:
  using WorkerCore::WorkerCore;
  void handle_message(Instant now, ConnId conn, const wire::Message& message) override {
    WorkerCore::handle_message(now, conn, message);
    if (message.has_hello()) welcomed_.push_back(conn);
  }
  std::optional<Action> poll_action() override {
    if (welcomed_.empty()) return WorkerCore::poll_action();
    wire::Message message;
    message.mutable_welcome()->set_protocol(kProtocolVersion);
    const ConnId conn = welcomed_.back();
    welcomed_.pop_back();
    return action::Send{conn, std::move(message)};
  }

 private:
  std::vector<ConnId> welcomed_;
};

/// Does not tell its store that a payload has grown.
class MakesNoRoom : public WorkerCore {
 public:
  using WorkerCore::WorkerCore;
  std::optional<Action> poll_action() override {
    std::optional<Action> action = WorkerCore::poll_action();
    while (action && std::holds_alternative<action::GrowPayload>(*action)) action = WorkerCore::poll_action();
    return action;
  }
};

SimOptions small_chain(std::string_view faults) {
  SimOptions options;
  options.seed = 42;
  options.workers = 4;
  options.payload_bytes = 8 * kMiB;
  options.chunk_bytes = 64 * kKiB;
  options.topology = Topology::kChain;
  options.network.origin_uplink = Rate::bits(100e6);
  options.faults = parse_faults(faults).value();
  return options;
}

constexpr std::string_view kTrouble = "at 200ms corrupt origin by 2\nat 300ms kill worker 2\n";

template <typename Bug>
std::string found_with() {
  SimOptions options = small_chain(kTrouble);
  options.make_worker = [](NodeIndex, const WorkerConfig& config) { return std::make_unique<Bug>(config); };
  return simulate(options).violation.value_or("nothing");
}

TEST(Invariants, HoldWithoutABug) { EXPECT_EQ(found_with<WorkerCore>(), "nothing"); }

TEST(Invariants, SkippedVerificationIsCaught) {
  EXPECT_THAT(found_with<SkipsVerification>(), testing::HasSubstr("which is damaged"));
}
TEST(Invariants, ForwardingBeforeVerifyingIsCaught) {
  EXPECT_THAT(found_with<ForwardsBeforeVerifying>(), testing::HasSubstr("which it has not verified"));
}
TEST(Invariants, AskingForWhatIsThereIsCaught) {
  EXPECT_THAT(found_with<ForgetsWhatItHas>(), testing::HasSubstr("which it has"));
}
TEST(Invariants, ADeadlineThatIsNotKeptIsCaught) {
  EXPECT_THAT(found_with<NeverLosesPatience>(), testing::HasSubstr("deadline stays in the past"));
}
TEST(Invariants, InstallingAPartIsCaught) {
  EXPECT_THAT(found_with<InstallsTooSoon>(), testing::HasSubstr("which is not whole"));
}

TEST(Invariants, SayingWhatTheReleaseBeforeDoesNotKnowIsCaught) {
  SimOptions options = small_chain("");
  options.nodes.older = {1, 2, 3, 4};
  EXPECT_EQ(simulate(options).violation.value_or("nothing"), "nothing");
  options.make_worker = [](NodeIndex, const WorkerConfig& config) { return std::make_unique<WelcomesAll>(config); };
  EXPECT_THAT(simulate(options).violation.value_or("nothing"), testing::HasSubstr("does not know it"));
}

TEST(Invariants, StoringWhatThereIsNoRoomForIsCaught) {
  SimOptions options = small_chain("at 3s publish\n");
  options.patches.enabled = true;
  options.patches.growths = 4;
  options.patches.make_delay = std::chrono::seconds(1);
  options.patches.share = 0.2;
  EXPECT_EQ(simulate(options).violation.value_or("nothing"), "nothing");
  options.make_worker = [](NodeIndex, const WorkerConfig& config) { return std::make_unique<MakesNoRoom>(config); };
  EXPECT_THAT(simulate(options).violation.value_or("nothing"), testing::HasSubstr("made no room"));
}

TEST(Invariants, AViolationNamesTheSeedAndTheFaults) {
  EXPECT_THAT(found_with<SkipsVerification>(),
              testing::AllOf(testing::StartsWith("seed 42"), testing::HasSubstr("corrupt")));
}

}  // namespace
}  // namespace weightcast::sim
