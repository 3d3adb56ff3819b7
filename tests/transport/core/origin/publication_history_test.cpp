// What an origin remembers of its publications, and what it says at the end of each.
#include "transport/core/origin/history/publication_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/transport/core/origin/origin_fixture.h"
#include "transport/core/origin/history/publication_text.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using End = PublicationRecord::End;

struct PublicationHistoryTest : OriginCoreTest {
  const PublicationRecord& record(std::uint64_t version) {
    const auto& all = origin.history().all();
    EXPECT_TRUE(all.contains(Version{version}));
    return all.at(Version{version});
  }
  /// Of a worker that was fed by `parent`: it received for `receiving_s` and applied for `applying_s`.
  static wire::InstallPhases phases(PeerId parent, double receiving_s, double applying_s = 0) {
    wire::InstallPhases message;
    message.set_receiving_s(receiving_s);
    message.set_applying_s(applying_s);
    message.set_bytes(100 * kChunkBytesMin);
    message.set_fed_by_id(parent.value);
    message.set_fed_bytes(100 * kChunkBytesMin);
    return message;
  }
  void fails(const std::string& name, std::uint64_t version) {
    wire::Message message;
    set_payload(*message.mutable_install_failed(), Version{version});
    message.mutable_install_failed()->set_detail("no room");
    tell(name, message);
  }
  std::vector<std::string> ends() {
    std::vector<std::string> found;
    for (const std::string& line : milestones) {
      if (line.starts_with("version ")) found.push_back(line);
    }
    return found;
  }
};

TEST_F(PublicationHistoryTest, TellsAtTheEndHowLongItTookAndWhoWasLast) {
  join("a"), join("b");
  publish(1);
  EXPECT_EQ(record(1).end, End::kUnderWay);
  EXPECT_EQ(record(1).slowest, "a") << "nobody has anything of it, and it was the first to join";
  EXPECT_EQ(record(1).why, "it has not begun");
  now += 2s;
  installed("a", 1, phases(kOriginId, 1.9));
  EXPECT_THAT(ends(), ElementsAre());
  now += 2s;
  installed("b", 1, phases(member("a").id, 1.95, 2));
  const PublicationRecord& one = record(1);
  EXPECT_EQ(one.end, End::kComplete);
  EXPECT_EQ(one.times.t50, 2s);
  EXPECT_EQ(one.times.t100, 4s);
  EXPECT_EQ(one.installed, 2u);
  EXPECT_EQ(one.workers, 2u);
  EXPECT_EQ(one.snapshot_bytes, 100u * kChunkBytesMin);
  EXPECT_EQ(one.slowest, "b");
  EXPECT_EQ(one.cause, "applying");
  EXPECT_GT(one.predicted, Duration::zero());
  EXPECT_THAT(
      ends(),
      ElementsAre(
          "version 1 is at all 2 workers after 4.00 s (predicted 0.03 s by chain): 400.0 KiB, 0 B sent, taken "
          "over in 0.00 s; slowest is b, told after 0.00 s, waited 0.00 s, first chunk after 0.00 s, received in "
          "1.95 s, stored in 0.00 s, applied in 2.00 s, switched in 0.00 s: it took 2.00 s to apply and install "
          "it"));
}

TEST_F(PublicationHistoryTest, SaysWhenANewerVersionCameFirstAndGoesOnCounting) {
  join("a"), join("b");
  publish(1);
  now += 1s;
  installed("a", 1, phases(kOriginId, 0.9));
  now += 1s;
  publish(2);
  EXPECT_EQ(record(1).end, End::kSuperseded);
  EXPECT_EQ(record(1).superseded_by, Version{2});
  EXPECT_THAT(ends(),
              ElementsAre(AllOf(StartsWith("version 1 is superseded by version 2 after 2.00 s; 1 of 2 workers have it"),
                                HasSubstr("furthest behind is b"), HasSubstr("it has not begun"))));
  complain("b", "a", wire::FAULT_KIND_NOT_AVAILABLE);  // of version 1
  EXPECT_TRUE(warnings.empty()) << warnings[0];
  now += 1s;
  installed("b", 1);
  EXPECT_EQ(record(1).times.t100, 3s) << "though it ended before";
  EXPECT_EQ(ends().size(), 1u);
}

TEST_F(PublicationHistoryTest, SaysWhyAVersionWasGivenUp) {
  join("a");
  publish(1);
  now += 1s;
  withdraw(1);
  EXPECT_EQ(record(1).end, End::kGivenUp);
  EXPECT_THAT(ends(), ElementsAre(AllOf(StartsWith("version 1 is given up after 1.00 s; 0 of 1 workers have it"),
                                        HasSubstr("the origin's copy is damaged"))));
  publish(2);
  EXPECT_EQ(ends().size(), 1u) << "it has ended once";
  origin.handle_publish_begun(now, taken_over_manifest(Version{3}, 4, 100));
  now += 500ms;
  origin.handle_publish_failed(now, Version{3}, "a tensor holds NaN");
  run();
  EXPECT_EQ(
      ends().back(),
      "version 3 is given up after 0.50 s; 0 of 1 workers have it (predicted 0.03 s by chain): 400.0 KiB, 0 B sent: "
      "the origin could not complete it: a tensor holds NaN");
  EXPECT_EQ(record(3).end, End::kGivenUp);
  EXPECT_EQ(record(3).slowest, "") << "no worker kept it";
  publish(3);
  EXPECT_EQ(record(3).end, End::kUnderWay) << "the number may be used again";
}

TEST_F(PublicationHistoryTest, KnowsWhoJoinedLateAndWhoWasGone) {
  join("a");
  publish(1);
  now += 3s;
  join("b");
  lose("a");
  now += 1s;
  join("a");
  now += 1s;
  installed("a", 1, phases(kOriginId, 0.9));
  installed("b", 1, phases(kOriginId, 1.5));
  const auto course = [&](const char* name) { return record(1).courses.at(member(name).id); };
  const Instant start = record(1).started_at;
  EXPECT_EQ(course("b").joined_at, start + 3s);
  EXPECT_FALSE(course("a").joined_at);
  EXPECT_EQ(course("a").rejoined_at, start + 4s);
  EXPECT_EQ(record(1).slowest, "a") << "of two that end together the one that is first in the book";
  EXPECT_EQ(record(1).cause, "reconnected");
}

TEST_F(PublicationHistoryTest, ShowsHowFarAVersionIsThatIsStillTakenOver) {
  join("a"), join("b");
  origin.handle_publish_begun(now, taken_over_manifest(Version{1}, 4, 100));
  run();
  now += 5s;
  EXPECT_EQ(record(1).end, End::kUnderWay);
  EXPECT_EQ(record(1).workers, 2u);
  EXPECT_EQ(record(1).installed, 0u);
  EXPECT_EQ(record(1).slowest, "a");
  EXPECT_EQ(record(1).snapshot_bytes, 100u * kChunkBytesMin) << "all that is to come";
  EXPECT_EQ(record(1).payload_bytes, 100u * kChunkBytesMin);
}

// What is remembered is what the log's line said, whatever the fleet does after it.
TEST_F(PublicationHistoryTest, ACompletePublicationDoesNotChange) {
  join("a"), join("b");
  publish(1);
  now += 1s;
  installed("a", 1), installed("b", 1);
  const PublicationRecord then = record(1);
  ASSERT_EQ(then.end, End::kComplete);
  join("late");
  now += 1s;
  installed("late", 1);
  lose("a"), lose("b");
  EXPECT_EQ(record(1).workers, then.workers);
  EXPECT_EQ(record(1).installed, then.installed);
  EXPECT_EQ(record(1).predicted, then.predicted);
  EXPECT_EQ(record(1).times.t100, then.times.t100);
}

// Nobody asks for the history in between.
TEST_F(PublicationHistoryTest, ASupersededVersionIsCountedOnThoughNobodyLooks) {
  for (const char* name : {"a", "b", "c", "d"}) join(name);
  publish(1);
  now += 1s;
  installed("a", 1);
  publish(2);
  now += 1s;
  installed("b", 1);
  EXPECT_EQ(record(1).installed, 2u);
  EXPECT_EQ(record(1).workers, 4u);
  installed("a", 2), installed("c", 2);
  now += 1s;
  installed("d", 2), installed("b", 2);
  now += 1s;
  for (std::uint64_t version = 3; version < 20; ++version) {
    publish(version);
    now += 1s;
  }
  EXPECT_EQ(record(1).installed, 4u);
  EXPECT_EQ(record(1).times.t50, 2s);
  EXPECT_EQ(record(1).times.t100, 3s);
}

TEST_F(PublicationHistoryTest, NamesTheWorkerWhoseLossEndedIt) {
  for (const char* name : {"a", "b", "c"}) join(name);
  publish(1);
  now += 2s;
  installed("a", 1, phases(kOriginId, 1.9)), installed("b", 1, phases(kOriginId, 1.9));
  now += 58s;
  lose("c");
  EXPECT_EQ(record(1).end, End::kComplete);
  EXPECT_EQ(record(1).times.t100, 60s);
  EXPECT_EQ(record(1).slowest, "c");
  EXPECT_EQ(record(1).cause, "left");
  EXPECT_THAT(ends(), ElementsAre(AllOf(StartsWith("version 1 is at all 2 workers after 60.00 s"),
                                        HasSubstr("slowest is c: it left 60.00 s after the publication had begun"))));
}

TEST_F(PublicationHistoryTest, EncodingIsThatOfThePatchFromTheVersionBefore) {
  PublicationHistory history;
  history.handle_published(now, now, *manifest_of(Version{9}, 1));
  history.handle_making(now, patch_of(Version{9}, Version{8}));
  now += 1s;
  history.handle_made(now, patch_of(Version{9}, Version{8}));
  history.handle_making(now, patch_of(Version{9}, Version{3}));
  now += 600s;
  history.handle_made(now, patch_of(Version{9}, Version{3}));
  EXPECT_EQ(history.all().at(Version{9}).encoding().lasted(), 1s);
  history.find(Version{9})->end = End::kComplete;
  history.handle_making(now, packed_of(Version{9}));
  EXPECT_FALSE(history.all().at(Version{9}).packing().began_at) << "for whoever came after the end";
}

// Whoever joins with a newer version has no way to an older one.
TEST_F(PublicationHistoryTest, KnowsNoWayOfAWorkerThatIsPastTheVersion) {
  PublicationHistory history;
  history.handle_published(now, now, *manifest_of(Version{9}, 1));
  Membership members;
  Member& a = members.by_name("a");
  a.installed = Version{10};
  history.handle_joined(now + 1s, a);
  EXPECT_TRUE(history.all().at(Version{9}).courses.empty());
}

// A name that was forgotten comes back with another number, and the way of the first one is still there.
TEST_F(PublicationHistoryTest, TellsWorkersOfOneNameApart) {
  PublicationRecord one;
  one.version = Version{7};
  one.end = End::kComplete;
  const auto add = [&](std::uint32_t id, Duration applying) {
    WorkerCourse& course = one.courses[PeerId{id}];
    course.name = "a";
    course.phases.emplace().applying = applying;
  };
  add(1, 1s), add(2, 3s);
  one.slowest = "a";
  one.slowest_id = PeerId{2};
  EXPECT_THAT(describe(one), HasSubstr("slowest is a, waited 0.00 s"));
  EXPECT_THAT(describe(one), HasSubstr("applied in 3.00 s"));
}

TEST_F(PublicationHistoryTest, WhatIsSupersededIsNoWarning) {
  join("a"), join("b");
  publish(1), publish(2);
  for (const auto kind : {wire::FAULT_KIND_CLOSED, wire::FAULT_KIND_SLOW, wire::FAULT_KIND_SILENT}) {
    complain("b", "a", kind);  // of version 1
  }
  fails("b", 1);
  // That two connections to it were closed is another fact.
  EXPECT_THAT(warnings, Not(Contains(HasSubstr("left its parent"))));
  EXPECT_THAT(warnings, Not(Contains(HasSubstr("could not install"))));
  warnings.clear();
  complain("b", "a", wire::FAULT_KIND_CORRUPT);
  EXPECT_EQ(warnings.size(), 1u) << "damage is damage";
  fails("b", 2);
  EXPECT_EQ(warnings.size(), 2u);
}

TEST_F(PublicationHistoryTest, AWordThatWasLostWithItsConnectionIsMadeUpForByTheNextJoin) {
  join("a"), join("b");
  publish(1);
  lose("a");
  now += 1s;
  wire::Message message = join_message_with("a", 1, snapshot_digest(Version{1}));
  message.mutable_join()->set_run_id(config.run.value);
  join("a", message);
  EXPECT_EQ(record(1).courses.at(member("a").id).installed_at, record(1).started_at + 1s);
  installed("a", 1, phases(kOriginId, 0.25));  // as it says once more when it is back
  EXPECT_EQ(record(1).courses.at(member("a").id).phases->receiving, 250ms);
  EXPECT_EQ(record(1).courses.at(member("a").id).installed_at, record(1).started_at + 1s);
  lose("b");
  EXPECT_EQ(record(1).slowest, "a");
  EXPECT_EQ(record(1).cause, "reconnected");
}

// A worker can say what it likes of itself; it stays a number that can be shown, or is not taken.
TEST_F(PublicationHistoryTest, PhasesThatCannotBeAreNotTaken) {
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), kPhaseMax_s * 1.01}) {
    wire::InstallPhases message = phases(kOriginId, 1);
    message.set_disk_behind_s(wrong);
    EXPECT_FALSE(install_phases_from_wire(message).has_value()) << wrong;
    message = phases(kOriginId, wrong);
    EXPECT_FALSE(install_phases_from_wire(message).has_value()) << wrong;
  }
  wire::InstallPhases message = phases(kOriginId, 1);
  message.set_bytes(kPayloadBytesMax + 1);
  EXPECT_FALSE(install_phases_from_wire(message).has_value()) << "no payload has so many bytes";
  message = phases(kOriginId, 1);
  message.set_fed_bytes(message.bytes() + 1);
  EXPECT_FALSE(install_phases_from_wire(message).has_value()) << "one of several sent more than all";
  const auto taken = install_phases_from_wire(phases(kOriginId, kPhaseMax_s));
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(install_phases_from_wire(install_phases_to_wire(*taken)), taken);
  join("a");
  publish(1);
  installed("a", 1, phases(kOriginId, -1));
  EXPECT_FALSE(record(1).courses.at(member("a").id).phases.has_value());
  EXPECT_EQ(record(1).cause, "unknown");
}

TEST_F(PublicationHistoryTest, TakesTheFirstWordAlone) {
  join("a"), join("b");
  publish(1);
  now += 1s;
  installed("a", 1, phases(kOriginId, 0.5));
  now += 1s;
  installed("a", 1, phases(kOriginId, 0.1));
  EXPECT_EQ(record(1).courses.at(member("a").id).installed_at, record(1).started_at + 1s);
  EXPECT_EQ(record(1).courses.at(member("a").id).phases->receiving, 500ms);
}

TEST_F(PublicationHistoryTest, KnowsWhenAnEngineTookTheVersion) {
  join("a"), join("b");
  publish(1);
  const auto taken = [&](const std::string& name, std::uint64_t version, double after_s) {
    wire::Message message;
    message.mutable_heartbeat()->set_taken_version(version);
    message.mutable_heartbeat()->set_taken_after_s(after_s);
    tell(name, message);
  };
  const auto course = [&](const std::string& name) { return record(1).courses.at(member(name).id); };
  taken("a", 1, 0.25);
  EXPECT_FALSE(course("a").taken_after.has_value()) << "it has not installed it";
  installed("a", 1, phases(kOriginId, 0.5));
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), kPhaseMax_s * 1.01}) {
    taken("a", 1, wrong);
    EXPECT_FALSE(course("a").taken_after.has_value()) << wrong;
  }
  taken("a", 7, 1);  // which nobody has published
  taken("a", 1, 0.25);
  taken("a", 1, 3);
  EXPECT_EQ(course("a").taken_after, 250ms) << "its first word counts";
  EXPECT_FALSE(course("b").taken_after.has_value());
  EXPECT_EQ(record(1).taken, 1u);
}

TEST_F(PublicationHistoryTest, ForgetsTheOldestBeyondItsBounds) {
  PublicationHistory history;
  Membership members;
  constexpr std::uint64_t kVersions = PublicationHistory::kVersionsMax + 10;
  constexpr int kMembers = 200;
  for (std::uint64_t version = 1; version <= kVersions; ++version) {
    history.handle_published(now, now, *manifest_of(Version{version}, 1));
    for (int i = 0; i < kMembers; ++i) {
      history.handle_told(now, members.by_name(std::to_string(i)), Version{version});
    }
  }
  EXPECT_EQ(history.all().size(), PublicationHistory::kVersionsMax);
  EXPECT_EQ(history.all().begin()->first, Version{11});
  std::size_t courses = 0;
  for (const auto& [_, one] : history.all()) courses += one.courses.size();
  EXPECT_LE(courses, PublicationHistory::kCoursesMax);
  EXPECT_GT(courses, PublicationHistory::kCoursesMax - kMembers);
  EXPECT_EQ(history.all().rbegin()->second.courses.size(), std::size_t(kMembers));
  EXPECT_TRUE(history.all().begin()->second.courses.empty());
}

// The version that the fleet has is needed as long as every attempt at a newer one fails.
TEST_F(PublicationHistoryTest, ForgetsAttemptsThatFailedBeforeTheVersionInUse) {
  publish(1);
  constexpr std::uint64_t kLast = PublicationHistory::kVersionsMax + 5;
  for (std::uint64_t version = 2; version <= kLast; ++version) {
    origin.handle_publish_begun(now, taken_over_manifest(Version{version}, 4, 100));
    origin.handle_publish_failed(now, Version{version}, "a tensor holds NaN");
    run();
  }
  EXPECT_EQ(origin.history().all().size(), PublicationHistory::kVersionsMax);
  EXPECT_FALSE(origin.history().all().contains(Version{2})) << "the oldest of those that failed";
  join("a");
  now += 1s;
  installed("a", 1);
  EXPECT_EQ(record(1).end, End::kComplete);
}

TEST_F(PublicationHistoryTest, AFallingNumberTakesThePlaceOfAnother) {
  PublicationHistory history;
  constexpr std::uint64_t kVersions = PublicationHistory::kVersionsMax;
  for (std::uint64_t version = 2 * kVersions; version > kVersions; --version) {
    history.handle_published(now, now, *manifest_of(Version{version}, 1));
  }
  Membership members;
  history.handle_wanted(now, *manifest_of(Version{7}, 1));
  history.handle_told(now, members.by_name("a"), Version{7});
  EXPECT_EQ(history.all().size(), kVersions);
  ASSERT_TRUE(history.all().contains(Version{7}));
  EXPECT_EQ(history.all().at(Version{7}).courses.size(), 1u);
  EXPECT_FALSE(history.all().contains(Version{kVersions + 1})) << "of those that are all under way, the oldest";
}

}  // namespace
}  // namespace weightcast
