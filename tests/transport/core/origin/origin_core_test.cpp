// Who joins an origin, and what becomes of members; whole fleets are in tests/sim/fleet_test.cpp.
#include "transport/core/origin/origin_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "tests/result_matchers.h"
#include "tests/transport/core/origin/origin_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST_F(OriginCoreTest, StopTellsChildrenGoodbyeAndNotThatAPayloadIsGone) {
  join("a");
  publish(1);
  const ConnId child = hear(hello_message("a", member("a").id.value));
  origin.handle_message(now, child, subscribe_message(Version{1}, {1}));
  run();
  said.clear();
  origin.stop("it is stopped");
  drain_actions();
  ASSERT_EQ(said[child].size(), 1u);
  EXPECT_TRUE(said[child][0].has_bye()) << said[child][0].ShortDebugString();
  EXPECT_THAT(closed, testing::Contains(child));
}

TEST_F(OriginCoreTest, PortThatIsNoneIsRefusedWithItsNumber) {
  wire::Message message = join_message("a");
  message.mutable_join()->mutable_listen()->set_port(65537);
  join("a", message);
  EXPECT_THAT(refusal("a"), HasSubstr("65537"));
  EXPECT_EQ(origin.members().active_count(), 0u);
}

TEST_F(OriginCoreTest, NamesAndHostsThatCannotBeShownAreRefused) {
  for (const std::string name : {"", "gpu-\xff", "a\nerror forged", "\x1b[2J", "-v", "two words"}) {
    wire::Message message = join_message(name);
    message.mutable_join()->mutable_listen()->set_host("10.0.0.1");
    join(name, message);
    EXPECT_THAT(refusal(name), HasSubstr("a name has 1 to 255 bytes"));
  }
  wire::Message message = join_message("a");
  message.mutable_join()->mutable_listen()->set_host("10.0.0.1\x1b[2J");
  join("a", message);
  EXPECT_THAT(refusal("a"), HasSubstr("10.0.0.1\\x1b[2J"));
  EXPECT_TRUE(origin.members().all().empty());
}

TEST_F(OriginCoreTest, WorkerNamedLikeTheOriginIsRefused) {
  join(config.name);
  EXPECT_THAT(refusal(config.name), HasSubstr("--name"));
  EXPECT_TRUE(origin.members().all().empty());
}

TEST_F(OriginCoreTest, VersionsPastTheLastAreNeitherJoinedWithNorPublished) {
  const Version past{kVersionMax.value + 1};
  join("a", join_message_with("a", past.value));
  EXPECT_THAT(refusal("a"), HasSubstr("versions end at 9223372036854775807"));
  EXPECT_EQ(origin.publications().check_version(past).error().code, Errc::kInvalidArgument);
  EXPECT_TRUE(origin.publications().check_version(kVersionMax).has_value());
}

TEST_F(OriginCoreTest, WorkerOfAnEarlierProtocolIsToldBothVersions) {
  wire::Message message = join_message("a");
  message.mutable_join()->set_protocol(kProtocolVersionMin - 1);
  join("a", message);
  EXPECT_THAT(refusal("a"), HasSubstr("it speaks protocol 6, this origin 7 to 8: its release is too old"));
}

TEST_F(OriginCoreTest, SpeaksWithEachWorkerWhatBothKnow) {
  struct {
    const char* name;
    std::uint32_t protocol, protocol_max, agreed;
  } const rows[] = {{"before", 7, 0, 7}, {"same", 7, 8, 8}, {"next", 8, 9, 8}};
  for (const auto& [name, protocol, protocol_max, agreed] : rows) {
    wire::Message message = join_message(name);
    message.mutable_join()->set_protocol(protocol);
    message.mutable_join()->set_protocol_max(protocol_max);
    join(name, message);
    ASSERT_EQ(heard_by(name, Kind::kJoined).size(), 1u) << name;
    EXPECT_EQ(heard_by(name, Kind::kJoined)[0].joined().protocol(), agreed) << name;
    EXPECT_EQ(member(name).protocol, agreed) << name;
    EXPECT_EQ(origin.protocols().of(conns.at(name)), agreed) << name;
  }
  for (const auto& row : rows) lose(row.name);
  EXPECT_EQ(origin.protocols().size(), 0u) << "nothing is kept of connections that have ended";
  wire::Message message = join_message("after next");
  message.mutable_join()->set_protocol(9);
  message.mutable_join()->set_protocol_max(10);
  join("after next", message);
  EXPECT_THAT(refusal("after next"),
              HasSubstr("it speaks protocol 9 to 10, this origin 7 to 8: its release is too new"));
}

TEST_F(OriginCoreTest, WelcomesNoChildOfTheReleaseBefore) {
  join("a");
  const auto hear_hello = [&](std::uint32_t protocol, std::uint32_t protocol_max) {
    wire::Message hello = hello_message("a");
    hello.mutable_hello()->set_protocol(protocol);
    hello.mutable_hello()->set_protocol_max(protocol_max);
    return hear(hello);
  };
  EXPECT_TRUE(said[hear_hello(7, 0)].empty());
  const ConnId child = hear_hello(7, 8);
  ASSERT_EQ(said[child].size(), 1u);
  EXPECT_EQ(said[child][0].welcome().protocol(), 8u);
  const ConnId stranger = hear_hello(6, 6);
  EXPECT_EQ(said[stranger].size(), 1u);
  EXPECT_THAT(refusal(stranger), HasSubstr("it speaks protocol 6, this node 7 to 8"));
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

TEST_F(OriginCoreTest, ReleasedWorkerGetsNothingUntilItIsActivated) {
  join("a"), join("b");
  publish(1);
  installed("a", 1);
  installed("b", 1);
  ASSERT_TRUE(origin.set_serving(now, "b", false).has_value());
  publish(2);
  EXPECT_EQ(heard_by("b", Kind::kAnnounce).size(), 1u);
  installed("a", 2);
  EXPECT_EQ(origin.publications().progress(Version{2})->active, 1u) << "nobody waits for it";
  lose("b");
  join("b");
  EXPECT_TRUE(member("b").standby);
  ASSERT_TRUE(origin.set_serving(now, "b", true).has_value());
  run();
  EXPECT_EQ(heard_by("b", Kind::kAnnounce).size(), 1u) << "of version 2, on its new connection";
}

TEST_F(OriginCoreTest, AForgottenWorkerIsKnownNoMoreUntilItJoinsAgain) {
  join("a"), join("b");
  publish(1);
  installed("a", 1);
  EXPECT_EQ(origin.forget_worker(now, "a").error().code, Errc::kBusy) << "connected";
  lose("a");
  const auto records = origin.peer_records_generation();
  ASSERT_TRUE(origin.forget_worker(now, "a").has_value());
  EXPECT_GT(origin.peer_records_generation(), records);
  ASSERT_EQ(origin.peer_records(now).size(), 1u);
  EXPECT_EQ(origin.peer_records(now)[0].name, "b");
  EXPECT_EQ(origin.forget_worker(now, "a").error().code, Errc::kNotFound);
  run();
  EXPECT_EQ(origin.members().id_of("a"), std::nullopt);
  join("a");
  EXPECT_EQ(origin.peer_records(now).size(), 2u);
}

TEST_F(OriginCoreTest, AWorkerThatSaysGoodbyeIsNoWarning) {
  join("a"), join("b");
  wire::Message goodbye;
  goodbye.mutable_leave()->set_reason("it was stopped");
  origin.handle_message(now, conns.at("a"), goodbye);
  run();
  EXPECT_FALSE(member("a").connected());
  EXPECT_THAT(warnings, testing::IsEmpty());
  lose("b");
  EXPECT_THAT(warnings, testing::ElementsAre(HasSubstr("lost worker b")));
}

TEST_F(OriginCoreTest, UnknownWorkerIsNeitherActivatedNorReleased) {
  join("worker-1");
  EXPECT_THAT(origin.set_serving(now, "worker1", true), FailsWith(Errc::kNotFound, "the nearest is 'worker-1'"));
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

TEST_F(OriginCoreTest, WorkerOnAGreaterVersionOfAnotherRunDisturbsNoPublication) {
  for (const std::uint64_t left_over : {std::uint64_t{9}, kVersionMax.value}) {
    const std::string name = "w" + std::to_string(left_over);
    join(name, join_message_with(name, left_over));
    EXPECT_TRUE(member(name).foreign);
    EXPECT_THAT(member(name).last_error, HasSubstr("another run"));
  }
  join("a");
  ASSERT_TRUE(origin.publications().check_version(Version{1}).has_value());
  publish(1);
  EXPECT_EQ(origin.publications().progress(Version{1})->active, 1u);
  EXPECT_EQ(origin.publications().progress(Version{1})->installed, 0u)
      << "what is from another run is not this version";
  installed("a", 1);
  EXPECT_TRUE(origin.publications().progress(Version{1})->t100);
  EXPECT_TRUE(heard_by("w9", Kind::kAnnounce).empty());
}

TEST_F(OriginCoreTest, WorkerFromAnotherRunGetsTheNextGreaterVersionWhole) {
  join("a", join_message_with("a", 9));
  publish(9);
  EXPECT_TRUE(heard_by("a", Kind::kAnnounce).empty()) << "its own version 9 is another one, for all that is known";
  publish(10);
  ASSERT_EQ(heard_by("a", Kind::kAnnounce).size(), 1u);
  EXPECT_EQ(heard_by("a", Kind::kAnnounce)[0].announce().manifest().payload().kind(), wire::PAYLOAD_KIND_FULL);
  EXPECT_FALSE(member("a").foreign);
  EXPECT_EQ(member("a").last_error, "");
}

TEST_F(OriginCoreTest, WorkerThatHasWhatThisOriginPublishesOnceMoreIsNotFromAnotherRun) {
  join("a", join_message_with("a", 9, manifest_of(Version{9}, 100)->snapshot_digest));
  ASSERT_TRUE(member("a").foreign);
  publish(9);
  EXPECT_FALSE(member("a").foreign);
  EXPECT_TRUE(origin.publications().progress(Version{9})->t100);
}

TEST_F(OriginCoreTest, WorkerFromAnotherRunIsNotRefusedWhenItJoinsAgain) {
  join("a", join_message_with("a", 9));
  publish(9);
  lose("a");
  join("a", join_message_with("a", 9));
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
  message.mutable_join()->set_installed_digest(std::string(Checksum::kBytes, 'x'));
  join("a", message);
  EXPECT_FALSE(member("a").foreign);
  EXPECT_TRUE(member("a").base_unusable) << "a patch from version 1 would not fit";
  ASSERT_EQ(heard_by("a", Kind::kAnnounce).size(), 1u);
}

TEST_F(OriginCoreTest, WorkerWithAVersionThatWasWithdrawnIsNotFromAnotherRun) {
  publish(1);
  publish(2);
  withdraw(2);
  ASSERT_EQ(origin.publications().latest(), Version{1});
  join("a", join_message_with("a", 2));
  EXPECT_FALSE(member("a").foreign);
  EXPECT_TRUE(member("a").active());
}

// Numbers of two runs have no order: it makes no difference whether theirs are greater or smaller.
TEST_F(OriginCoreTest, WorkerOfAnotherRunIsToldToBeginThisOneOnceThisHasAVersion) {
  for (const std::uint64_t left_over : {std::uint64_t{1}, std::uint64_t{9}, kVersionMax.value}) {
    const std::string name = "w" + std::to_string(left_over);
    wire::Message message = join_message_with(name, left_over);
    message.mutable_join()->set_run_id(1);
    payload_to_wire(patch_of(Version{left_over + 1}, Version{left_over}), *message.mutable_join()->mutable_receiving());
    join(name, message);
    EXPECT_TRUE(heard_by(name, Kind::kNewRun).empty()) << "there is nothing to take its place";
    EXPECT_EQ(heard_by(name, Kind::kJoined).at(0).joined().run_id(), 0u);
    EXPECT_THAT(member(name).last_error, HasSubstr("of another run, 0000000000000001"));
  }
  join("a");
  EXPECT_EQ(heard_by("a", Kind::kJoined).at(0).joined().run_id(), 2u);
  publish(1);
  EXPECT_EQ(origin.publications().progress(Version{1})->active, 1u) << "they keep no publication waiting";
  EXPECT_TRUE(heard_by("a", Kind::kNewRun).empty());
  for (const char* name : {"w1", "w9"}) {
    ASSERT_EQ(heard_by(name, Kind::kNewRun).size(), 1u) << name;
    EXPECT_EQ(heard_by(name, Kind::kNewRun)[0].new_run().run_id(), 2u);
    EXPECT_TRUE(heard_by(name, Kind::kAnnounce).empty());
    installed(name, 1);  // what it says of its own run's versions
    EXPECT_EQ(member(name).installed, kNoVersion);
    lose(name);
    wire::Message message = join_message(name);
    message.mutable_join()->set_run_id(2);
    join(name, message);
    EXPECT_TRUE(member(name).active());
    EXPECT_EQ(heard_by(name, Kind::kAnnounce).size(), 1u);
  }
  EXPECT_EQ(origin.publications().progress(Version{1})->active, 3u);
}

TEST_F(OriginCoreTest, WorkerOfAnotherRunThatJoinsLaterIsToldAtOnce) {
  publish(1);
  wire::Message message = join_message_with("a", 1);
  message.mutable_join()->set_run_id(1);
  join("a", message);
  EXPECT_EQ(heard_by("a", Kind::kNewRun).size(), 1u);
  EXPECT_EQ(origin.publications().progress(Version{1})->installed, 0u);
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
  lose("b");
  EXPECT_EQ(origin.members().all().size(), 2u);
  now += 2 * Membership::kKeepLost;
  for (std::uint64_t version = 2; version <= 7; ++version) publish(version);
  EXPECT_EQ(origin.members().all().size(), 1u);
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

TEST_F(OriginCoreTest, RemembersOverARestartWhoComplainedOfWhom) {
  PeerRecord a{.name = "a", .score = {}, .standing = {}, .offence = "tried to join as b", .complaints = {}};
  // Of one that stands behind it in the file, and of one that is forgotten.
  a.complaints = {{"b", PeerFault::kCorrupt, 3, false}, {"gone", PeerFault::kSlow, 0, false}};
  a.voice = 1;
  const PeerRecord b{.name = "b", .score = {}, .standing = {}, .offence = {}, .complaints = {}};
  origin.restore_peers(now, {a, b});
  EXPECT_EQ(origin.faults().complaints_of(member("b").id), 1u);
  EXPECT_EQ(origin.faults().complaints_by(member("a").id), 1u);
  EXPECT_EQ(member("a").offence, a.offence);
  const std::vector<PeerRecord> records = origin.peer_records(now);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].complaints, std::vector{a.complaints[0]});
  EXPECT_EQ(records[0].voice, 1u);
  EXPECT_EQ(records[0].offence, a.offence);
}

}  // namespace
}  // namespace weightcast
