// What an origin publishes: versions, plans, and what members say of them.
#include "transport/core/origin/publications.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "tests/transport/core/origin/origin_fixture.h"
#include "tests/transport/core/plan/relations.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct PublicationsTest : OriginCoreTest {};

TEST_F(PublicationsTest, VersionThatIsDamagedHereIsWithdrawnAndItsNumberStaysUsed) {
  join("a");
  publish(1);
  withdraw(1);
  EXPECT_EQ(origin.publications().latest(), kNoVersion);
  EXPECT_TRUE(origin.holdings().empty());
  EXPECT_EQ(gone_for("a"), std::vector<PayloadId>{Version{1}});
  EXPECT_THAT(origin.last_error(), HasSubstr("the file is shorter"));
  EXPECT_EQ(origin.publications().check_version(Version{1}).error().code, Errc::kAlreadyExists)
      << "workers may have its other bytes";
  publish(2);
  EXPECT_EQ(announced_to("a").back(), PayloadId(Version{2}));
}

// Where a worker says that bytes of the origin's are damaged, the origin looks at its own copy, and believes that.
TEST_F(PublicationsTest, WorkerThatGetsDamageFromTheOriginHasItLookAtItsCopy) {
  join("a");
  publish(1);
  wire::Message fault;
  set_payload(*fault.mutable_parent_fault(), Version{1});
  fault.mutable_parent_fault()->set_parent_id(kOriginId.value);
  fault.mutable_parent_fault()->set_kind(wire::FAULT_KIND_CORRUPT);
  fault.mutable_parent_fault()->set_damaged_chunk(2);
  tell("a", fault);
  origin.handle_chunk_checked(now, Version{1}, ChunkIndex{2}, chunk_digests(Version{1}, 100)[2]);
  run();
  EXPECT_EQ(origin.publications().latest(), Version{1}) << "here it is right";
  now += SelfCheck::kRecheckAfter;
  fault.mutable_parent_fault()->set_damaged_chunk(3);
  tell("a", fault);
  origin.handle_chunk_checked(now, Version{1}, ChunkIndex{3}, chunk_digests(Version{1}, 100)[2]);
  run();
  EXPECT_EQ(origin.publications().latest(), kNoVersion);
  EXPECT_EQ(heard_by("a", Kind::kNotAvailable).size(), 1u);
}

TEST_F(PublicationsTest, VersionThatTheDiskLostIsWithdrawn) {
  join("a");
  publish(1);
  origin.handle_version_lost(now, Version{1}, nullptr, fail(Errc::kCorrupt, Op::kSync, "the disk refused its bytes"));
  run();
  EXPECT_EQ(origin.publications().latest(), kNoVersion);
  EXPECT_EQ(heard_by("a", Kind::kNotAvailable).size(), 1u);
  EXPECT_THAT(origin.last_error(), HasSubstr("the disk refused its bytes"));
  EXPECT_EQ(origin.publications().check_version(Version{1}).error().code, Errc::kAlreadyExists);
}

TEST_F(PublicationsTest, ClosedConnectionLowersTheScoreIfTheOriginLosesThatWorkerToo) {
  join("a"), join("b"), join("c");
  publish(1);
  const double before = member("a").score_at(now);
  complain("b", "a", wire::FAULT_KIND_CLOSED);
  EXPECT_EQ(member("a").score_at(now), before) << "it may be a lie";
  EXPECT_TRUE(children_of(*origin.publications().latest_plan(), member("a").id, 0).empty());
  origin.handle_closed(now, member("a").conn, fail(Errc::kClosed, Op::kReceive, "gone"));
  EXPECT_LT(member("a").score_at(now), before);
}

TEST_F(PublicationsTest, ALeafFeedsNobody) {
  join("a"), join("b"), join("c");
  publish(1);
  ASSERT_EQ(children_of(*origin.publications().latest_plan(), member("a").id, 0).size(), 1u);
  complain("a", kOriginId, wire::FAULT_KIND_SLOW);
  EXPECT_TRUE(children_of(*origin.publications().latest_plan(), member("a").id, 0).empty());
}

TEST_F(PublicationsTest, WhoIsFedSlowlyByTwoIsBlamedItselfAndTheSecondIsNot) {
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

TEST_F(PublicationsTest, StarvingChildIsFedByAnotherIfTheParentHasMoreByItsOwnWord) {
  join("a"), join("b"), join("c");
  publish(1);
  const double before = member("a").score_at(now);
  complain("b", "a", wire::FAULT_KIND_STARVED);
  EXPECT_EQ(member("a").score_at(now), before);
  EXPECT_FALSE(children_of(*origin.publications().latest_plan(), member("a").id, 0).empty());
  receives("a", 1, 50);
  complain("b", "a", wire::FAULT_KIND_STARVED);
  EXPECT_EQ(member("a").score_at(now), before);
  EXPECT_TRUE(children_of(*origin.publications().latest_plan(), member("a").id, 0).empty());
}

TEST_F(PublicationsTest, InstalledVersionThatNobodyPublishedIsNotBelieved) {
  join("a");
  publish(1);
  wire::Message message;
  set_payload(*message.mutable_installed(), Version{77});
  tell("a", message);
  EXPECT_EQ(member("a").installed, kNoVersion);
}

TEST_F(PublicationsTest, InstalledVersionThatIsStillBeingMadeIsNotBelieved) {
  join("a");
  origin.handle_publish_begun(now, taken_over_manifest(Version{1}, 0, 8));
  run();
  tell("a", installed_message(Version{1}, Checksum{}));
  EXPECT_EQ(member("a").installed, kNoVersion) << "its digest stands as 0 until it is known";
}

TEST_F(PublicationsTest, LossesAndJoinsOfOneMomentCostOneRepairOfEachPlan) {
  for (int i = 0; i < 200; ++i) join("w" + std::to_string(i));
  publish(1);
  const std::uint64_t before = origin.publications().repair_count();
  for (int i = 0; i < 100; ++i) {
    origin.handle_closed(now, conns.at("w" + std::to_string(i)), fail(Errc::kClosed, Op::kReceive, "gone"));
  }
  run();
  EXPECT_EQ(origin.publications().repair_count(), before + 1);
  EXPECT_EQ(origin.publications().latest_plan()->members.size(), 100u);
}

TEST_F(PublicationsTest, PlansThatAreNeverAtRestLeaveTheLoopTimeForOtherThings) {
  for (int i = 0; i < 1000; ++i) join("w" + std::to_string(i));
  publish(1);
  const std::uint64_t before = origin.publications().repair_count();
  const Instant began = now;
  for (int i = 0; i < 500; ++i) {
    now += 100us;
    origin.handle_closed(now, conns.at("w" + std::to_string(i)), fail(Errc::kClosed, Op::kReceive, "gone"));
    if (const auto due = origin.poll_deadline(); due && *due <= now) origin.handle_timeout(now);
    drain_actions();
  }
  EXPECT_LE(origin.publications().repair_count() - before, (now - began) / 2ms)
      << "5 us for each of 500 to 1,000 members";
  run();
  EXPECT_EQ(origin.publications().latest_plan()->members.size(), 500u);
}

TEST_F(PublicationsTest, LosingHalfOfAThousandAtOnceCostsLittleMoreThanLosingOne) {
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

TEST_F(PublicationsTest, ChildrenThatReadNothingKeepTwoOldPatchesAtMost) {
  OriginConfig with_patches = config;
  with_patches.patches = true;
  OriginCore core(with_patches);
  const ConnId child = core.next_conn();
  core.handle_accepted(now, child, "host");
  core.handle_message(now, child, hello_message("child"));
  for (std::uint64_t version = 1; version <= 14; ++version) {
    core.handle_publish(now, now, {manifest_of(Version{version}, 100), chunk_digests(Version{version}, 100)});
    for (const auto& make : only<action::MakePayload>(drain([&] { return core.poll_action(); }))) {
      // So large that no two of them in a row are worth keeping.
      const auto manifest = growing_manifest(make.payload, 48, false);
      core.handle_payload_made(now, make.payload, MadePayload{manifest, chunk_digests(make.payload.version, 48)});
      core.handle_message(now, child, subscribe_message(make.payload));
    }
  }
  const auto patches = std::ranges::count_if(core.holdings(), [](const auto& h) { return h.first.is_patch(); });
  EXPECT_LE(patches, 4) << "of the latest version, of the one before, and two that children wait for";
  EXPECT_GE(patches, 3) << "the last ones are kept for who reads";
}

TEST_F(PublicationsTest, PublicationsOutOfOrderAreRefusedAndEndNothing) {
  join("a");
  publish(5);
  publish(5), publish(4), publish(kVersionMax.value + 1);
  EXPECT_EQ(origin.publications().latest(), Version{5});
  origin.handle_publish_grown(now, {taken_over_manifest(Version{6}, 4, 8), chunk_digests(Version{6}, 4)});
  origin.handle_publish_begun(now, taken_over_manifest(Version{6}, 0, 8));
  origin.handle_publish_begun(now, taken_over_manifest(Version{7}, 0, 8));
  publish(7);
  origin.handle_publish_failed(now, Version{6}, "a tensor holds NaN");
  origin.handle_publish_grown(now, {taken_over_manifest(Version{6}, 4, 8), chunk_digests(Version{6}, 4)});
  run();
  EXPECT_EQ(origin.publications().latest(), Version{5});
  publish(6);
  EXPECT_EQ(origin.publications().latest(), Version{6});
}

TEST_F(PublicationsTest, VersionThatGrowsToAnotherThanWasAnnouncedIsWithdrawn) {
  join("a");
  origin.handle_publish_begun(now, taken_over_manifest(Version{1}, 0, 8));
  MadePayload other{taken_over_manifest(Version{1}, 4, 12), chunk_digests(Version{1}, 4)};
  origin.handle_publish_grown(now, other);
  run();
  EXPECT_EQ(origin.publications().latest(), kNoVersion);
  EXPECT_EQ(heard_by("a", Kind::kNotAvailable).size(), 1u);
  publish(1);
  EXPECT_EQ(origin.publications().latest(), Version{1}) << "the number is free again";
}

TEST_F(PublicationsTest, VersionWhoseDigestsAreNotThoseOfItsManifestIsNotPublished) {
  join("a");
  origin.handle_publish(now, now, {manifest_of(Version{1}, 100), chunk_digests(Version{2}, 100)});
  run();
  EXPECT_EQ(origin.publications().latest(), kNoVersion);
  publish(1);
  EXPECT_EQ(origin.publications().latest(), Version{1});
}

TEST_F(PublicationsTest, WorkerThatJoinsInTheMiddleOfAnOlderVersionIsToldItsPlanOfNow) {
  join("a"), join("b");
  publish(1);
  receives("a", 1), receives("b", 1);
  publish(2);
  lose("b");
  join("b", join_message_amid("b", 1));
  const auto assignments = heard_by("b", Kind::kAssignment);
  ASSERT_EQ(assignments.size(), 1u);
  EXPECT_EQ(assignments[0].assignment().payload().version(), 1u);
  EXPECT_EQ(announced_to("b"), (std::vector<PayloadId>{Version{1}, Version{2}}))
      << "it may have missed the end of the first, and what it is assigned is said last";
}

TEST_F(PublicationsTest, WorkerThatJoinsInTheMiddleOfTheLatestIsToldOfItThoughANewerOneComesAtOnce) {
  join("a"), join("b");
  publish(1);
  receives("b", 1);
  lose("b");
  const ConnId conn = conns["b"] = origin.next_conn();
  origin.handle_accepted(now, conn, "host", std::nullopt);
  origin.handle_message(now, conn, join_message_amid("b", 1));
  publish(2);  // before the plan of version 1 is settled
  EXPECT_EQ(announced_to("b"), (std::vector<PayloadId>{Version{1}, Version{2}})) << "it goes on with the first";
}

TEST_F(PublicationsTest, WorkerWhoseDiskFailedInTheMiddleOfAnOlderVersionIsStillAssignedTheLatest) {
  join("a"), join("b");
  publish(1), publish(2);
  lose("b");
  join("b", join_message_amid("b", 1));
  wire::Message failed;
  set_payload(*failed.mutable_install_failed(), Version{2});
  tell("b", failed);
  wire::Message beat;
  beat.mutable_heartbeat();
  tell("b", beat);
  receives("b", 1);  // as it began it before it joined
  const auto announced = heard_by("b", Kind::kAnnounce);
  EXPECT_EQ(announced.back().announce().manifest().payload().version(), 2u);
  EXPECT_EQ(announced.back().announce().assignment().stripes_size(), 1);
}

TEST_F(PublicationsTest, WorkerThatTookUpWhatWaitedBeforeItJoinedAgainIsToldWhatBecameOfIt) {
  join("a"), join("b");
  publish(1), publish(2), publish(3);
  lose("b");
  join("b");  // it says later that it is in the middle of something
  std::vector<PayloadId> announced = announced_to("b");
  receives("b", 2);
  announced.insert(announced.end(), {Version{2}, Version{3}});
  EXPECT_EQ(announced_to("b"), announced) << "what it is assigned is said last";
  receives("b", 1);
  EXPECT_EQ(gone_for("b"), std::vector<PayloadId>{Version{1}});
}

TEST_F(PublicationsTest, WorkerThatJoinsInTheMiddleOfAVersionThatIsNoMoreIsToldSo) {
  join("a");
  for (std::uint64_t version = 1; version <= 3; ++version) publish(version);
  join("b", join_message_amid("b", 1));
  EXPECT_EQ(gone_for("b"), std::vector<PayloadId>{Version{1}});
}

TEST_F(PublicationsTest, WorkerThatStarvesOfAVersionThatIsNoMoreIsToldSo) {
  for (const char* name : {"a", "b", "c"}) join(name);
  wire::Message starves;
  set_payload(*starves.mutable_parent_fault(), Version{1});
  starves.mutable_parent_fault()->set_kind(wire::FAULT_KIND_STARVED);
  starves.mutable_parent_fault()->set_parent_id(member("a").id.value);
  starves.mutable_parent_fault()->set_now_from_id(member("a").id.value);
  starves.mutable_parent_fault()->set_starving_ms(1000);
  publish(1), receives("b", 1);
  tell("b", starves);
  EXPECT_TRUE(heard_by("b", Kind::kNotAvailable).empty()) << "its plan can be repaired";
  // Two versions that others receive stay, so the one that b receives does not.
  publish(2), receives("a", 2);
  publish(3), receives("c", 3);
  publish(4), publish(5);
  ASSERT_FALSE(origin.holdings().contains(Version{1}));
  EXPECT_TRUE(heard_by("b", Kind::kNotAvailable).empty()) << "others may still feed it";
  tell("b", starves);
  EXPECT_EQ(gone_for("b"), std::vector<PayloadId>{Version{1}});
  // What it does not receive is nobody's business.
  set_payload(*starves.mutable_parent_fault(), Version{77});
  tell("b", starves);
  EXPECT_EQ(heard_by("b", Kind::kNotAvailable).size(), 1u);
}

TEST_F(PublicationsTest, WorkerThatGetsFarLessThanBeforeOfAVersionThatIsNoMoreIsToldSo) {
  for (const char* name : {"a", "b", "c"}) join(name);
  origin.handle_publish(now, now, {manifest_of(Version{1}, 1100), chunk_digests(Version{1}, 1100)});
  run();
  wire::Message has = installed_message(Version{1}, snapshot_digest(Version{1}));
  has.mutable_installed()->set_seconds(1);
  tell("b", has);
  publish(2), receives("b", 2);
  publish(3), receives("a", 3);
  publish(4), receives("c", 4);
  publish(5), publish(6);
  ASSERT_FALSE(origin.holdings().contains(Version{2}));
  const auto beats = [&](double bytes_per_s) {
    wire::Message beat;
    payload_to_wire(Version{2}, *beat.mutable_heartbeat()->mutable_receiving());
    beat.mutable_heartbeat()->set_receive_bytes_per_s(bytes_per_s);
    for (const Instant end = now + 11s; now < end; now += 500ms) tell("b", beat);
  };
  const double before = 1100.0 * kChunkBytesMin;
  beats(before / 7);
  EXPECT_TRUE(heard_by("b", Kind::kNotAvailable).empty()) << "others may still feed it";
  beats(before / 9);
  EXPECT_EQ(gone_for("b"), std::vector<PayloadId>{Version{2}});
}

// Before its first version nobody knows what its link carries. If the link is slow, it needs ever more time.
TEST_F(PublicationsTest, WorkerThatGetsFarLessOfItsFirstVersionThanOthersIsToldSoEverMoreSeldom) {
  for (const char* name : {"a", "b", "c"}) join(name);
  publish(1), receives("b", 1);
  publish(2), receives("a", 2);
  publish(3), receives("c", 3);
  publish(4), publish(5);
  ASSERT_FALSE(origin.holdings().contains(Version{1}));
  const auto times_told_after = [&](Duration time, double bytes_per_s) {
    wire::Message beat;
    payload_to_wire(Version{1}, *beat.mutable_heartbeat()->mutable_receiving());
    beat.mutable_heartbeat()->set_receive_bytes_per_s(bytes_per_s);
    for (const Instant end = now + time; now < end; now += 500ms) tell("b", beat);
    return heard_by("b", Kind::kNotAvailable).size();
  };
  const double uplink = config.uplink.bytes_per_s;
  EXPECT_EQ(times_told_after(11s, uplink / 7), 0u);
  EXPECT_EQ(times_told_after(11s, uplink / 9), 1u);
  EXPECT_EQ(times_told_after(18s, uplink / 9), 1u);
  EXPECT_EQ(times_told_after(4s, uplink / 9), 2u);
}

TEST_F(PublicationsTest, RelayThatJoinsAgainOverALiveConnectionIsDialledAtItsNewAddress) {
  join("a"), join("b");
  publish(1);
  const std::string relay = parent_of("b") == member("a").id ? "a" : "b", child = relay == "a" ? "b" : "a";
  installed(relay, 1);
  now += 2s;  // it was restarted, and its connection is not closed yet
  wire::Message message = join_message_with(relay, 1, origin.holdings().at(Version{1}).manifest().snapshot_digest);
  message.mutable_join()->set_incarnation(2);
  message.mutable_join()->mutable_listen()->set_port(2);
  payload_to_wire(Version{1}, *message.mutable_join()->add_held());
  join(relay, message);
  ASSERT_EQ(parent_of(child), member(relay).id);
  const auto told = heard_by(child, Kind::kAssignment);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().assignment().stripes(0).ancestors(0).address().port(), 2u);
}

TEST_F(PublicationsTest, WhoSkipsAVersionFeedsNobodyWithIt) {
  join("a"), join("b"), join("c");
  publish(1);
  receives("a", 1), receives("c", 1);
  publish(2);
  receives("b", 2);  // it had not begun the first when the second came
  const auto told = heard_by("c", Kind::kAssignment);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().assignment().payload().version(), 1u);
  EXPECT_EQ(told.back().assignment().stripes(0).ancestors(0).name(), "a");
}

TEST_F(PublicationsTest, TimesOfFractionsAreThoseOfTheInstallsThatFilledThem) {
  for (char name = 'a'; name < 'a' + 20; ++name) join(std::string(1, name));
  publish(1);
  const Instant published = now;
  const auto installs = [&](char name) {
    now += 1s;
    installed(std::string(1, name), 1);
  };
  for (char name = 'a'; name < 'a' + 9; ++name) installs(name);
  EXPECT_FALSE(origin.publications().progress(Version{1})->t50);
  // One of those who lack it goes: half of the rest is nine and a half.
  lose("t");
  EXPECT_FALSE(origin.publications().progress(Version{1})->t50);
  for (char name = 'a' + 9; name < 'a' + 19; ++name) installs(name);
  const auto progress = origin.publications().progress(Version{1});
  EXPECT_EQ(progress->t50, now - published - 9s);
  EXPECT_EQ(progress->t90, now - published - 1s);
  EXPECT_EQ(progress->t100, now - published);
}

}  // namespace
}  // namespace weightcast
