// One origin, spoken to message by message; whole fleets are in fleet_test.cpp.
#include "transport/core/origin/origin_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct OriginCoreTest : testing::Test {
  OriginConfig config = [] {
    OriginConfig c;
    c.patches = false;  // nobody here makes them
    c.topology = Topology::kChain;
    c.uplink = Rate::bits(100e6);
    c.timeouts.silence = 1000h;  // nobody here sends heartbeats
    return c;
  }();
  OriginCore origin{config};
  Instant now{1h};
  std::map<std::string, ConnId> conns;
  std::map<ConnId, action::Connect> probes;
  std::map<ConnId, std::vector<wire::Message>> said;

  /// What has changed is settled a moment later, by the core's own deadline.
  void run() {
    drain_actions();
    for (auto due = origin.poll_deadline(); due && *due <= now + 100ms; due = origin.poll_deadline()) {
      origin.handle_timeout(std::max(now, *due));
      drain_actions();
    }
  }
  void drain_actions() {
    for (const Action& action : drain([&] { return origin.poll_action(); })) {
      if (const auto* send = std::get_if<action::Send>(&action)) said[send->conn].push_back(send->message);
      if (const auto* connect = std::get_if<action::Connect>(&action)) probes[connect->conn] = *connect;
    }
  }
  void SetUp() override { origin.start(now); }

  static wire::Message join_message(const std::string& name) {
    wire::Message message;
    wire::Join* join = message.mutable_join();
    join->set_protocol(kProtocolVersion);
    join->set_name(name);
    join->set_incarnation(1);
    join->mutable_listen()->set_host(name);
    join->mutable_listen()->set_port(1);
    join->set_uplink_bytes_per_s(12.5e6);
    join->set_downlink_bytes_per_s(12.5e6);
    return message;
  }
  void join(const std::string& name, wire::Message message) {
    const ConnId conn = origin.next_conn();
    conns[name] = conn;
    origin.handle_accepted(now, conn, "host");
    origin.handle_message(now, conn, message);
    run();
  }
  void join(const std::string& name) { join(name, join_message(name)); }
  void answer_probes(bool reached) {
    for (const auto& [conn, connect] : std::exchange(probes, {})) {
      if (reached) {
        origin.handle_connected(now, conn);
      } else {
        origin.handle_closed(now, conn, fail(Errc::kClosed, Op::kConnect, "no way there"));
      }
    }
    run();
  }
  void publish(std::uint64_t version) {
    origin.handle_publish(now, now, {manifest_of(Version{version}, 100), chunk_digests(Version{version}, 100)});
    run();
  }
  /// The origin finds that its own copy is damaged.
  void withdraw(std::uint64_t version) {
    origin.handle_chunk_unreadable(now, Version{version}, ChunkIndex{2});
    origin.handle_chunk_checked(now, Version{version}, ChunkIndex{2},
                                fail(Errc::kIo, Op::kRead, "the file is shorter"));
    run();
  }
  const Member& member(const std::string& name) {
    const auto& all = origin.members().all();
    return std::ranges::find_if(all, [&](const auto& m) { return m.second.name == name; })->second;
  }
  void tell(const std::string& name, wire::Message message) {
    origin.handle_message(now, conns.at(name), message);
    run();
  }
  void lose(const std::string& name) {
    origin.handle_closed(now, conns.at(name), fail(Errc::kClosed, Op::kReceive, "gone"));
    run();
  }
  void installed(const std::string& name, std::uint64_t version) {
    wire::Message message;
    set_payload(*message.mutable_installed(), Version{version});
    const Digest digest = origin.holdings().at(Version{version}).manifest().snapshot_digest;
    message.mutable_installed()->set_snapshot_digest(digest.bytes.data(), Digest::kBytes);
    tell(name, message);
  }
  void complain(const std::string& child, PeerId parent, wire::FaultKind kind) {
    wire::Message message;
    set_payload(*message.mutable_parent_fault(), Version{1});
    message.mutable_parent_fault()->set_parent_id(parent.value);
    message.mutable_parent_fault()->set_kind(kind);
    tell(child, message);
  }
  void complain(const std::string& child, const std::string& parent, wire::FaultKind kind) {
    complain(child, member(parent).id, kind);
  }
  PeerId parent_of(const std::string& name) {
    const Plan& plan = *origin.latest_plan();
    const auto at = std::ranges::find(plan.members, member(name).id) - plan.members.begin();
    return plan.stripes.at(0).parents.at(std::size_t(at));
  }
  std::vector<wire::Message> heard_by(const std::string& name, wire::Message::KindCase kind) {
    std::vector<wire::Message> found;
    for (const auto& message : said[conns.at(name)]) {
      if (message.kind_case() == kind) found.push_back(message);
    }
    return found;
  }
};

using Kind = wire::Message::KindCase;

TEST_F(OriginCoreTest, StopTellsChildrenGoodbyeAndNotThatAPayloadIsGone) {
  join("a");
  publish(1);
  const ConnId child = origin.next_conn();
  origin.handle_accepted(now, child, "host");
  wire::Message hello;
  hello.mutable_hello()->set_protocol(kProtocolVersion);
  hello.mutable_hello()->set_peer_id(member("a").id.value);
  hello.mutable_hello()->set_name("a");
  origin.handle_message(now, child, hello);
  wire::Message subscribe;
  set_payload(*subscribe.mutable_subscribe(), Version{1});
  subscribe.mutable_subscribe()->add_stripe_weights(1);
  origin.handle_message(now, child, subscribe);
  run();
  said.clear();
  origin.stop("it is stopped");
  std::set<ConnId> closed;
  for (const Action& action : drain([&] { return origin.poll_action(); })) {
    if (const auto* send = std::get_if<action::Send>(&action)) said[send->conn].push_back(send->message);
    if (const auto* close = std::get_if<action::Close>(&action)) closed.insert(close->conn);
  }
  ASSERT_EQ(said[child].size(), 1u);
  EXPECT_TRUE(said[child][0].has_bye()) << said[child][0].ShortDebugString();
  EXPECT_TRUE(closed.contains(child));
}

TEST_F(OriginCoreTest, PortThatIsNoneIsRefusedWithItsNumber) {
  wire::Message message = join_message("a");
  message.mutable_join()->mutable_listen()->set_port(65537);
  join("a", message);
  ASSERT_EQ(heard_by("a", Kind::kBye).size(), 1u);
  EXPECT_THAT(heard_by("a", Kind::kBye)[0].bye().reason(), HasSubstr("65537"));
  EXPECT_EQ(origin.members().active_count(), 0u);
}

TEST_F(OriginCoreTest, NamesAndHostsThatCannotBeShownAreRefused) {
  for (const std::string name : {"", "gpu-\xff", "a\nerror forged", "\x1b[2J", "-v", "two words"}) {
    wire::Message message = join_message(name);
    message.mutable_join()->mutable_listen()->set_host("10.0.0.1");
    join(name, message);
    ASSERT_EQ(heard_by(name, Kind::kBye).size(), 1u) << name;
    EXPECT_THAT(heard_by(name, Kind::kBye)[0].bye().reason(), HasSubstr("a name has 1 to 255 bytes"));
  }
  wire::Message message = join_message("a");
  message.mutable_join()->mutable_listen()->set_host("10.0.0.1\x1b[2J");
  join("a", message);
  ASSERT_EQ(heard_by("a", Kind::kBye).size(), 1u);
  EXPECT_THAT(heard_by("a", Kind::kBye)[0].bye().reason(), HasSubstr("10.0.0.1\\x1b[2J"));
  EXPECT_TRUE(origin.members().all().empty());
}

TEST_F(OriginCoreTest, WorkerNamedLikeTheOriginIsRefused) {
  join(config.name);
  ASSERT_EQ(heard_by(config.name, Kind::kBye).size(), 1u);
  EXPECT_THAT(heard_by(config.name, Kind::kBye)[0].bye().reason(), HasSubstr("--name"));
  EXPECT_TRUE(origin.members().all().empty());
}

TEST_F(OriginCoreTest, VersionsPastTheLastAreNeitherJoinedWithNorPublished) {
  const Version past{kVersionMax.value + 1};
  wire::Message message = join_message("a");
  message.mutable_join()->set_installed_version(past.value);
  join("a", message);
  ASSERT_EQ(heard_by("a", Kind::kBye).size(), 1u);
  EXPECT_THAT(heard_by("a", Kind::kBye)[0].bye().reason(), HasSubstr("versions end at 9223372036854775807"));
  EXPECT_EQ(origin.check_version(past).error().code, Errc::kInvalidArgument);
  EXPECT_TRUE(origin.check_version(kVersionMax).has_value());
}

TEST_F(OriginCoreTest, WorkerOfAnEarlierProtocolIsToldBothVersions) {
  wire::Message message = join_message("a");
  message.mutable_join()->set_protocol(kProtocolVersion - 1);
  join("a", message);
  ASSERT_EQ(heard_by("a", Kind::kBye).size(), 1u);
  EXPECT_THAT(heard_by("a", Kind::kBye)[0].bye().reason(), HasSubstr("it speaks protocol 4, this origin 5"));
}

TEST_F(OriginCoreTest, VersionThatIsDamagedHereIsWithdrawnAndItsNumberStaysUsed) {
  join("a");
  publish(1);
  withdraw(1);
  EXPECT_EQ(origin.latest(), kNoVersion);
  EXPECT_TRUE(origin.holdings().empty());
  const auto gone = heard_by("a", Kind::kNotAvailable);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(payload_of(gone[0].not_available()), PayloadId(Version{1}));
  EXPECT_THAT(origin.last_error(), HasSubstr("the file is shorter"));
  EXPECT_EQ(origin.check_version(Version{1}).error().code, Errc::kAlreadyExists) << "workers may have its other bytes";
  publish(2);
  EXPECT_EQ(heard_by("a", Kind::kAnnounce).back().announce().manifest().payload().version(), 2u);
}

TEST_F(OriginCoreTest, ParentThatHasNotGotTheVersionKeepsItsScore) {
  join("a"), join("b"), join("c");
  publish(1);
  const double before = member("a").score_at(now);
  complain("b", "a", wire::FAULT_KIND_NOT_AVAILABLE);
  EXPECT_EQ(member("a").score_at(now), before);
  EXPECT_TRUE(children_of(*origin.latest_plan(), member("a").id, 0).empty()) << "but it feeds nobody this time";
}

TEST_F(OriginCoreTest, ClosedConnectionLowersTheScore) {
  join("a"), join("b"), join("c");
  publish(1);
  const double before = member("a").score_at(now);
  complain("b", "a", wire::FAULT_KIND_CLOSED);
  EXPECT_LT(member("a").score_at(now), before);
}

TEST_F(OriginCoreTest, LeafThatFindsItsParentSlowIsNotBelievedAlone) {
  join("a"), join("b"), join("c");
  publish(1);
  const double before = member("b").score_at(now);
  complain("c", "b", wire::FAULT_KIND_SLOW);
  EXPECT_EQ(member("b").score_at(now), before) << "it may be the leaf that is slow";
  EXPECT_EQ(children_of(*origin.latest_plan(), member("b").id, 0).size(), 1u) << "b is not hung below it";
  complain("b", "a", wire::FAULT_KIND_SLOW);
  EXPECT_LT(member("a").score_at(now), member("b").score_at(now));
  EXPECT_TRUE(children_of(*origin.latest_plan(), member("a").id, 0).empty());
}

TEST_F(OriginCoreTest, RelayThatTheOriginItselfFeedsSlowlyIsPassedBy) {
  join("a"), join("b"), join("c");
  publish(1);
  const double before = member("a").score_at(now);
  ASSERT_EQ(children_of(*origin.latest_plan(), member("a").id, 0).size(), 1u);
  complain("a", kOriginId, wire::FAULT_KIND_SLOW);
  EXPECT_TRUE(children_of(*origin.latest_plan(), member("a").id, 0).empty());
  EXPECT_EQ(member("a").score_at(now), before) << "it has failed nobody";
}

TEST_F(OriginCoreTest, WhoIsFedSlowlyByTwoIsBlamedItselfAndTheSecondIsNot) {
  join("a"), join("b"), join("c"), join("d");
  publish(1);
  const PeerId first = parent_of("b");
  ASSERT_NE(first, kOriginId);
  complain("b", first, wire::FAULT_KIND_SLOW);
  const PeerId second = parent_of("b");
  ASSERT_NE(second, first);
  const double before = member("b").score_at(now);
  complain("b", second, wire::FAULT_KIND_SLOW);
  EXPECT_LT(member("b").score_at(now), before);
}

TEST_F(OriginCoreTest, ToWhomTwoAreSilentIsPassedByItselfAndNobodyElseIs) {
  join("a"), join("b"), join("c"), join("d");
  publish(1);
  complain("b", parent_of("b"), wire::FAULT_KIND_SILENT);
  EXPECT_FALSE(children_of(*origin.latest_plan(), member("b").id, 0).empty());
  const PeerId second = parent_of("b");
  const double before = member("b").score_at(now);
  complain("b", second, wire::FAULT_KIND_SILENT);
  EXPECT_TRUE(children_of(*origin.latest_plan(), member("b").id, 0).empty());
  EXPECT_EQ(member("b").score_at(now), before) << "both may have stopped";
}

TEST_F(OriginCoreTest, SilentParentIsPassedByAndItsChildIsNot) {
  join("a"), join("b"), join("c");
  publish(1);
  ASSERT_EQ(parent_of("b"), member("a").id);
  const double before = member("a").score_at(now);
  complain("b", "a", wire::FAULT_KIND_SILENT);
  EXPECT_LT(member("a").score_at(now), before);
  EXPECT_TRUE(children_of(*origin.latest_plan(), member("a").id, 0).empty());
  EXPECT_FALSE(children_of(*origin.latest_plan(), member("b").id, 0).empty());
}

TEST_F(OriginCoreTest, StarvingChildIsBelievedIfTheParentHasMoreByItsOwnWord) {
  join("a"), join("b"), join("c");
  publish(1);
  const double before = member("a").score_at(now);
  complain("b", "a", wire::FAULT_KIND_STARVED);
  EXPECT_EQ(member("a").score_at(now), before);
  EXPECT_FALSE(children_of(*origin.latest_plan(), member("a").id, 0).empty());
  wire::Message beat;
  payload_to_wire(Version{1}, *beat.mutable_heartbeat()->mutable_receiving());
  beat.mutable_heartbeat()->set_chunks_verified(50);
  tell("a", beat);
  complain("b", "a", wire::FAULT_KIND_STARVED);
  EXPECT_LT(member("a").score_at(now), before);
  EXPECT_TRUE(children_of(*origin.latest_plan(), member("a").id, 0).empty());
}

TEST_F(OriginCoreTest, StandbyWorkerStepsBackWhenTheLostOneReturns) {
  join("a");
  wire::Message spare = join_message("spare");
  spare.mutable_join()->set_standby(true);
  join("spare", spare);
  publish(1);
  installed("a", 1);
  lose("a");
  EXPECT_FALSE(member("spare").standby);
  EXPECT_EQ(heard_by("spare", Kind::kAnnounce).size(), 1u);
  join("a");
  EXPECT_TRUE(member("spare").standby);
  publish(2);
  EXPECT_EQ(heard_by("spare", Kind::kAnnounce).size(), 1u);
}

TEST_F(OriginCoreTest, StrangerThatJoinsAndLeavesCostsNoStandbyWorker) {
  join("a");
  wire::Message spare = join_message("spare");
  spare.mutable_join()->set_standby(true);
  join("spare", spare);
  publish(1);
  join("stranger");
  lose("stranger");
  EXPECT_TRUE(member("spare").standby);
}

// ---- versions of other runs

TEST_F(OriginCoreTest, WorkerOnAGreaterVersionOfAnotherRunDisturbsNoPublication) {
  for (const std::uint64_t left_over : {std::uint64_t{9}, kVersionMax.value}) {
    const std::string name = "w" + std::to_string(left_over);
    wire::Message message = join_message(name);
    message.mutable_join()->set_installed_version(left_over);
    join(name, message);
    EXPECT_TRUE(member(name).foreign);
    EXPECT_THAT(member(name).last_error, HasSubstr("another run"));
  }
  join("a");
  ASSERT_TRUE(origin.check_version(Version{1}).has_value());
  publish(1);
  EXPECT_EQ(origin.progress(Version{1})->active, 1u);
  EXPECT_EQ(origin.progress(Version{1})->installed, 0u) << "what is from another run is not this version";
  installed("a", 1);
  EXPECT_TRUE(origin.progress(Version{1})->t100);
  EXPECT_TRUE(heard_by("w9", Kind::kAnnounce).empty());
}

TEST_F(OriginCoreTest, WorkerFromAnotherRunGetsTheNextGreaterVersionWhole) {
  wire::Message message = join_message("a");
  message.mutable_join()->set_installed_version(9);
  join("a", message);
  publish(9);
  EXPECT_TRUE(heard_by("a", Kind::kAnnounce).empty()) << "its own version 9 is another one, for all that is known";
  publish(10);
  ASSERT_EQ(heard_by("a", Kind::kAnnounce).size(), 1u);
  EXPECT_EQ(heard_by("a", Kind::kAnnounce)[0].announce().manifest().payload().kind(), wire::PAYLOAD_KIND_FULL);
  EXPECT_FALSE(member("a").foreign);
  EXPECT_EQ(member("a").last_error, "");
}

TEST_F(OriginCoreTest, WorkerThatHasWhatThisOriginPublishesOnceMoreIsNotFromAnotherRun) {
  wire::Message message = join_message("a");
  message.mutable_join()->set_installed_version(9);
  const Digest digest = manifest_of(Version{9}, 100)->snapshot_digest;
  message.mutable_join()->set_installed_digest(digest.bytes.data(), Digest::kBytes);
  join("a", message);
  ASSERT_TRUE(member("a").foreign);
  publish(9);
  EXPECT_FALSE(member("a").foreign);
  EXPECT_TRUE(origin.progress(Version{9})->t100);
}

TEST_F(OriginCoreTest, WorkerFromAnotherRunIsNotRefusedWhenItJoinsAgain) {
  wire::Message message = join_message("a");
  message.mutable_join()->set_installed_version(9);
  join("a", message);
  publish(9);
  lose("a");
  join("a", message);
  EXPECT_TRUE(heard_by("a", Kind::kBye).empty());
  EXPECT_TRUE(member("a").foreign) << "its version 9 is not the one of this origin";
  publish(10);
  ASSERT_EQ(heard_by("a", Kind::kAnnounce).size(), 1u);
  EXPECT_FALSE(member("a").foreign);
}

TEST_F(OriginCoreTest, WorkerThatHasOtherBytesUnderAnOldNumberGetsTheLatestWhole) {
  publish(1);
  publish(2);
  wire::Message message = join_message("a");
  message.mutable_join()->set_installed_version(1);
  message.mutable_join()->set_installed_digest(std::string(Digest::kBytes, 'x'));
  join("a", message);
  EXPECT_FALSE(member("a").foreign);
  EXPECT_TRUE(member("a").base_unusable) << "a patch from version 1 would not fit";
  ASSERT_EQ(heard_by("a", Kind::kAnnounce).size(), 1u);
}

TEST_F(OriginCoreTest, WorkerWithAVersionThatWasWithdrawnIsNotFromAnotherRun) {
  publish(1);
  publish(2);
  withdraw(2);
  ASSERT_EQ(origin.latest(), Version{1});
  wire::Message message = join_message("a");
  message.mutable_join()->set_installed_version(2);
  join("a", message);
  EXPECT_FALSE(member("a").foreign);
  EXPECT_TRUE(member("a").active());
}

TEST_F(OriginCoreTest, InstalledVersionThatNobodyPublishedIsNotBelieved) {
  join("a");
  publish(1);
  wire::Message message;
  set_payload(*message.mutable_installed(), Version{77});
  tell("a", message);
  EXPECT_EQ(member("a").installed, kNoVersion);
}

// ---- many at once

TEST_F(OriginCoreTest, LossesAndJoinsOfOneMomentCostOneRepairOfEachPlan) {
  for (int i = 0; i < 200; ++i) join("w" + std::to_string(i));
  publish(1);
  const std::uint64_t before = origin.repair_count();
  for (int i = 0; i < 100; ++i) {
    origin.handle_closed(now, conns.at("w" + std::to_string(i)), fail(Errc::kClosed, Op::kReceive, "gone"));
  }
  run();
  EXPECT_EQ(origin.repair_count(), before + 1);
  EXPECT_EQ(origin.latest_plan()->members.size(), 100u);
}

TEST_F(OriginCoreTest, PlansThatAreNeverAtRestLeaveTheLoopTimeForOtherThings) {
  for (int i = 0; i < 1000; ++i) join("w" + std::to_string(i));
  publish(1);
  const std::uint64_t before = origin.repair_count();
  const Instant began = now;
  for (int i = 0; i < 500; ++i) {
    now += 100us;
    origin.handle_closed(now, conns.at("w" + std::to_string(i)), fail(Errc::kClosed, Op::kReceive, "gone"));
    if (const auto due = origin.poll_deadline(); due && *due <= now) origin.handle_timeout(now);
    drain_actions();
  }
  EXPECT_LE(origin.repair_count() - before, (now - began) / 2ms) << "5 us for each of 500 to 1,000 members";
  run();
  EXPECT_EQ(origin.latest_plan()->members.size(), 500u);
}

TEST_F(OriginCoreTest, LosingHalfOfAThousandAtOnceCostsLittleMoreThanLosingOne) {
  for (int i = 0; i < 1000; ++i) join("w" + std::to_string(i));
  publish(1);
  const auto cpu_to_lose = [&](int from, int to) {
    const std::clock_t began = std::clock();
    for (int i = from; i < to; ++i) {
      origin.handle_closed(now, conns.at("w" + std::to_string(i)), fail(Errc::kClosed, Op::kReceive, "gone"));
    }
    now += 1s;
    origin.handle_timeout(now);
    drain_actions();
    return double(std::clock() - began);
  };
  const double one = cpu_to_lose(0, 1);
  EXPECT_LT(cpu_to_lose(1, 501), 50 * std::max(one, 0.001 * CLOCKS_PER_SEC)) << "it was 500 times and more";
}

TEST_F(OriginCoreTest, ChildrenThatReadNothingKeepTwoOldPatchesAtMost) {
  OriginConfig with_patches = config;
  with_patches.patches = true;
  OriginCore core(with_patches);
  const ConnId child = core.next_conn();
  core.handle_accepted(now, child, "host");
  wire::Message hello;
  hello.mutable_hello()->set_protocol(kProtocolVersion);
  hello.mutable_hello()->set_peer_id(7);
  core.handle_message(now, child, hello);
  for (std::uint64_t version = 1; version <= 14; ++version) {
    core.handle_publish(now, now, {manifest_of(Version{version}, 100), chunk_digests(Version{version}, 100)});
    for (const auto& make : only<action::MakePatch>(drain([&] { return core.poll_action(); }))) {
      // So large that no two of them in a row are worth keeping.
      const auto manifest = growing_manifest(make.payload, 48, false);
      core.handle_patch_made(now, make.payload, MadePayload{manifest, chunk_digests(make.payload.version, 48)});
      wire::Message subscribe;
      set_payload(*subscribe.mutable_subscribe(), make.payload);
      core.handle_message(now, child, subscribe);
    }
  }
  const auto patches = std::ranges::count_if(core.holdings(), [](const auto& h) { return h.first.is_patch(); });
  EXPECT_LE(patches, 4) << "of the latest version, of the one before, and two that children wait for";
  EXPECT_GE(patches, 3) << "the last ones are kept for who reads";
}

TEST_F(OriginCoreTest, PublicationsOutOfOrderAreRefusedAndEndNothing) {
  join("a");
  publish(5);
  publish(5), publish(4), publish(kVersionMax.value + 1);
  EXPECT_EQ(origin.latest(), Version{5});
  origin.handle_publish_grown(now, {taken_over_manifest(Version{6}, 4, 8), chunk_digests(Version{6}, 4)});
  origin.handle_publish_begun(now, taken_over_manifest(Version{6}, 0, 8));
  origin.handle_publish_begun(now, taken_over_manifest(Version{7}, 0, 8));
  publish(7);
  origin.handle_publish_failed(now, Version{6});
  origin.handle_publish_grown(now, {taken_over_manifest(Version{6}, 4, 8), chunk_digests(Version{6}, 4)});
  run();
  EXPECT_EQ(origin.latest(), Version{5});
  publish(6);
  EXPECT_EQ(origin.latest(), Version{6});
}

TEST_F(OriginCoreTest, VersionThatGrowsToAnotherThanWasAnnouncedIsWithdrawn) {
  join("a");
  origin.handle_publish_begun(now, taken_over_manifest(Version{1}, 0, 8));
  MadePayload other{taken_over_manifest(Version{1}, 4, 12), chunk_digests(Version{1}, 4)};
  origin.handle_publish_grown(now, other);
  run();
  EXPECT_EQ(origin.latest(), kNoVersion);
  EXPECT_EQ(heard_by("a", Kind::kNotAvailable).size(), 1u);
  publish(1);
  EXPECT_EQ(origin.latest(), Version{1}) << "the number is free again";
}

TEST_F(OriginCoreTest, VersionWhoseDigestsAreNotThoseOfItsManifestIsNotPublished) {
  join("a");
  origin.handle_publish(now, now, {manifest_of(Version{1}, 100), chunk_digests(Version{2}, 100)});
  run();
  EXPECT_EQ(origin.latest(), kNoVersion);
  publish(1);
  EXPECT_EQ(origin.latest(), Version{1});
}

TEST_F(OriginCoreTest, StrangersThatComeAndGoAreForgottenThoughNothingIsPublished) {
  join("a");
  for (int i = 0; i < 3300; ++i) {
    join("stranger" + std::to_string(i));
    lose("stranger" + std::to_string(i));
    ASSERT_LE(origin.members().all().size(), 2 * Membership::kStrangersMax + 1);
  }
  now += 2 * Membership::kKeepStranger;
  tell("a", wire::Message());
  EXPECT_EQ(origin.members().all().size(), 1u);
}

TEST_F(OriginCoreTest, WorkerThatJoinsInTheMiddleOfAnOlderVersionIsToldItsPlanOfNow) {
  join("a"), join("b");
  publish(1);
  wire::Message beat;
  payload_to_wire(Version{1}, *beat.mutable_heartbeat()->mutable_receiving());
  tell("a", beat), tell("b", beat);
  publish(2);
  origin.handle_closed(now, conns.at("b"), fail(Errc::kClosed, Op::kReceive, "reset"));
  run();
  wire::Message again = join_message("b");
  payload_to_wire(Version{1}, *again.mutable_join()->mutable_receiving());
  join("b", again);
  const auto assignments = heard_by("b", Kind::kAssignment);
  ASSERT_EQ(assignments.size(), 1u);
  EXPECT_EQ(assignments[0].assignment().payload().version(), 1u);
  const auto announced = heard_by("b", Kind::kAnnounce);
  ASSERT_EQ(announced.size(), 2u);
  EXPECT_EQ(announced[0].announce().manifest().payload().version(), 1u) << "it may have missed its end";
  EXPECT_EQ(announced[1].announce().manifest().payload().version(), 2u) << "what it is assigned is said last";
}

TEST_F(OriginCoreTest, WorkerWhoseDiskFailedInTheMiddleOfAnOlderVersionIsStillAssignedTheLatest) {
  join("a"), join("b");
  publish(1), publish(2);
  origin.handle_closed(now, conns.at("b"), fail(Errc::kClosed, Op::kReceive, "reset"));
  run();
  wire::Message again = join_message("b");
  payload_to_wire(Version{1}, *again.mutable_join()->mutable_receiving());
  join("b", again);
  wire::Message failed;
  set_payload(*failed.mutable_install_failed(), Version{2});
  tell("b", failed);
  wire::Message beat;
  beat.mutable_heartbeat();
  tell("b", beat);
  payload_to_wire(Version{1}, *beat.mutable_heartbeat()->mutable_receiving());
  tell("b", beat);  // as it began it before it joined
  const auto announced = heard_by("b", Kind::kAnnounce);
  EXPECT_EQ(announced.back().announce().manifest().payload().version(), 2u);
  EXPECT_EQ(announced.back().announce().assignment().stripes_size(), 1);
}

TEST_F(OriginCoreTest, WorkerThatTookUpWhatWaitedBeforeItJoinedAgainIsToldWhatBecameOfIt) {
  join("a"), join("b");
  publish(1), publish(2), publish(3);
  origin.handle_closed(now, conns.at("b"), fail(Errc::kClosed, Op::kReceive, "reset"));
  run();
  join("b");  // it says later that it is in the middle of something
  const auto announced_before = heard_by("b", Kind::kAnnounce).size();
  wire::Message beat;
  payload_to_wire(Version{2}, *beat.mutable_heartbeat()->mutable_receiving());
  tell("b", beat);
  const auto announced = heard_by("b", Kind::kAnnounce);
  ASSERT_EQ(announced.size(), announced_before + 2);
  EXPECT_EQ(announced[announced_before].announce().manifest().payload().version(), 2u);
  EXPECT_EQ(announced.back().announce().manifest().payload().version(), 3u) << "what it is assigned is said last";
  payload_to_wire(Version{1}, *beat.mutable_heartbeat()->mutable_receiving());
  tell("b", beat);
  const auto gone = heard_by("b", Kind::kNotAvailable);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].not_available().payload().version(), 1u);
}

TEST_F(OriginCoreTest, WorkerThatJoinsInTheMiddleOfAVersionThatIsNoMoreIsToldSo) {
  join("a");
  for (std::uint64_t version = 1; version <= 3; ++version) publish(version);
  wire::Message late = join_message("b");
  payload_to_wire(Version{1}, *late.mutable_join()->mutable_receiving());
  join("b", late);
  const auto told = heard_by("b", Kind::kNotAvailable);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].not_available().payload().version(), 1u);
}

TEST_F(OriginCoreTest, RelayThatJoinsAgainOverALiveConnectionIsDialledAtItsNewAddress) {
  join("a"), join("b");
  publish(1);
  const std::string relay = parent_of("b") == member("a").id ? "a" : "b", child = relay == "a" ? "b" : "a";
  installed(relay, 1);
  now += 2s;  // it was restarted, and its connection is not closed yet
  wire::Message message = join_message(relay);
  message.mutable_join()->set_incarnation(2);
  message.mutable_join()->mutable_listen()->set_port(2);
  message.mutable_join()->set_installed_version(1);
  const Digest digest = origin.holdings().at(Version{1}).manifest().snapshot_digest;
  message.mutable_join()->set_installed_digest(digest.bytes.data(), Digest::kBytes);
  payload_to_wire(Version{1}, *message.mutable_join()->add_held());
  join(relay, message);
  ASSERT_EQ(parent_of(child), member(relay).id);
  const auto told = heard_by(child, Kind::kAssignment);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().assignment().stripes(0).ancestors(0).address().port(), 2u);
}

TEST_F(OriginCoreTest, WhoSkipsAVersionFeedsNobodyWithIt) {
  join("a"), join("b"), join("c");
  publish(1);
  wire::Message beat;
  payload_to_wire(Version{1}, *beat.mutable_heartbeat()->mutable_receiving());
  tell("a", beat), tell("c", beat);
  wire::Message ahead;
  payload_to_wire(Version{2}, *ahead.mutable_heartbeat()->mutable_receiving());
  publish(2);
  tell("b", ahead);  // it had not begun the first when the second came
  const auto told = heard_by("c", Kind::kAssignment);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().assignment().payload().version(), 1u);
  EXPECT_EQ(told.back().assignment().stripes(0).ancestors(0).name(), "a");
}

TEST_F(OriginCoreTest, WorkerThatTheOriginCannotDialRelaysOnceAnotherHasReachedIt) {
  join("a"), join("b");
  answer_probes(false);
  EXPECT_FALSE(member("a").can_relay());
  ASSERT_EQ(heard_by("b", Kind::kProbe).size(), 1u);
  EXPECT_EQ(heard_by("b", Kind::kProbe)[0].probe().peer_id(), member("a").id.value);
  EXPECT_EQ(heard_by("b", Kind::kProbe)[0].probe().address().port(), 1u);
  wire::Message probed;
  probed.mutable_probed()->set_peer_id(member("a").id.value);
  probed.mutable_probed()->set_reached(false);
  tell("b", probed);
  EXPECT_FALSE(member("a").can_relay());
  probed.mutable_probed()->set_reached(true);
  tell("b", probed);
  EXPECT_TRUE(member("a").can_relay());
  EXPECT_FALSE(member("b").can_relay()) << "nobody has reached that one";
  join("c");
  EXPECT_EQ(heard_by("c", Kind::kProbe).size(), 1u) << "who joins is asked to try";
}

TEST_F(OriginCoreTest, LostWorkerIsForgottenWhenNoPlanNeedsItAnyMore) {
  join("a"), join("b");
  publish(1);
  origin.handle_closed(now, conns.at("b"), fail(Errc::kClosed, Op::kReceive, "gone"));
  run();
  EXPECT_EQ(origin.members().all().size(), 2u);
  now += 2 * Membership::kKeepLost;
  for (std::uint64_t version = 2; version <= 7; ++version) publish(version);
  EXPECT_EQ(origin.members().all().size(), 1u);
}

TEST_F(OriginCoreTest, TimesOfFractionsAreThoseOfTheInstallsThatFilledThem) {
  for (char name = 'a'; name < 'a' + 20; ++name) join(std::string(1, name));
  publish(1);
  const Instant published = now;
  const auto installs = [&](char name) {
    now += 1s;
    installed(std::string(1, name), 1);
  };
  for (char name = 'a'; name < 'a' + 9; ++name) installs(name);
  EXPECT_FALSE(origin.progress(Version{1})->t50);
  // One of those who lack it goes: half of the rest is nine and a half.
  origin.handle_closed(now, conns.at("t"), fail(Errc::kClosed, Op::kReceive, "gone"));
  run();
  EXPECT_FALSE(origin.progress(Version{1})->t50);
  for (char name = 'a' + 9; name < 'a' + 19; ++name) installs(name);
  const auto progress = origin.progress(Version{1});
  EXPECT_EQ(progress->t50, now - published - 9s);
  EXPECT_EQ(progress->t90, now - published - 1s);
  EXPECT_EQ(progress->t100, now - published);
}

TEST_F(OriginCoreTest, StallOfTheOriginIsNotTheWorkersSilenceWhicheverIsHandledFirst) {
  config.timeouts.silence = 5s;
  OriginCore stalled{config};
  stalled.start(now);
  for (const char* name : {"a", "b"}) {
    const ConnId conn = conns[name] = stalled.next_conn();
    stalled.handle_accepted(now, conn, "host");
    stalled.handle_message(now, conn, join_message(name));
  }
  now += 6s;
  wire::Message beat;
  beat.mutable_heartbeat();
  stalled.handle_message(now, conns["a"], beat);  // B's is still to be read
  stalled.handle_timeout(now);
  EXPECT_EQ(stalled.members().active_count(), 2u);
  now += 5s;
  for (int i = 0; i < 10; ++i) stalled.handle_timeout(now - 5s + i * 500ms);
  stalled.handle_timeout(now);
  EXPECT_EQ(stalled.members().active_count(), 0u) << "now they have been silent, while the origin was not";
}

TEST_F(OriginCoreTest, ManyWorkersAreToldToReportLessOften) {
  for (int i = 0; i < 5000; ++i) join("w" + std::to_string(i));
  EXPECT_EQ(heard_by("w0", Kind::kJoined)[0].joined().heartbeat_ms(), 500u);
  EXPECT_EQ(heard_by("w4999", Kind::kJoined)[0].joined().heartbeat_ms(), 1000u);
}

}  // namespace
}  // namespace weightcast
