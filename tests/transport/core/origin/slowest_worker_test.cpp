#include "transport/core/origin/history/slowest_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/limits.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

/// Version 7, 12 MB, published at `start` and taken over in 100 ms. Workers are a, b, c, ... with the numbers 1, 2, 3.
struct SlowestWorkerTest : testing::Test {
  SlowestWorkerTest() {
    record.version = Version{7};
    record.started_at = start;
    record.taking_over = {start, start + 100ms};
    record.snapshot_bytes = record.payload_bytes = 12'000'000;
  }
  /// It was told after 10 ms, and received for `receiving`, from `fed_by`.
  WorkerCourse& add(std::uint32_t id, std::uint32_t fed_by, Duration receiving) {
    WorkerCourse& course = record.courses[PeerId{id}];
    course.name = std::string(1, static_cast<char>('a' + id - 1));
    course.payload = Version{7};
    course.told_at = start + 10ms;
    InstallPhases phases;
    phases.asking = 5ms;
    phases.receiving = receiving;
    phases.storing = 1ms;
    phases.applying = 20ms;
    phases.switching = 1ms;
    phases.bytes = phases.fed_bytes = 12'000'000;
    phases.fed_by = PeerId{fed_by};
    course.phases = phases;
    course.installed_at = *course.told_at + phases.total();
    return course;
  }
  /// Changes its phases, and with them when it had installed the version.
  template <typename Change>
  static void change(WorkerCourse& course, Change change_it) {
    const Duration before = course.phases->total();
    change_it(*course.phases);
    *course.installed_at += course.phases->total() - before;
  }
  SlowestWorker slowest() {
    const auto found = slowest_worker(record, "trainer");
    EXPECT_TRUE(found.has_value());
    return found.value_or(SlowestWorker());
  }

  const Instant start{1h};
  PublicationRecord record;
};

TEST_F(SlowestWorkerTest, NobodyHasItYet) { EXPECT_FALSE(slowest_worker(record, "trainer").has_value()); }

TEST_F(SlowestWorkerTest, OnASlowLinkOfItsOwn) {
  add(1, 0, 1s), add(2, 0, 1s);
  add(3, 1, 6s);
  EXPECT_EQ(slowest().id, PeerId{3});
  EXPECT_EQ(slowest().cause, SlowCause::kLink);
  EXPECT_EQ(slowest().why, "its link brought 1.9 MiB/s from a");
}

TEST_F(SlowestWorkerTest, OfAChainWaitsForItsParent) {
  add(1, 0, 1s);
  add(2, 1, 6s);         // its link is the slow one
  add(3, 2, 6s + 30ms);  // and this has each chunk hardly later
  EXPECT_EQ(slowest().id, PeerId{3});
  EXPECT_EQ(slowest().cause, SlowCause::kParent);
  EXPECT_EQ(slowest().why, "it waited for its parent b; b: its link brought 1.9 MiB/s from a");
  add(4, 3, 6s + 60ms);
  EXPECT_EQ(slowest().why, "it waited for its parent c (behind b); b: its link brought 1.9 MiB/s from a");
}

TEST_F(SlowestWorkerTest, SharesALinkWithOthersThatAreAsSlow) {
  add(1, 0, 4s), add(2, 0, 4s + 10ms), add(3, 0, 4s + 20ms), add(4, 0, 1s);
  EXPECT_EQ(slowest().why, "its link brought 2.8 MiB/s from trainer, which fed 2 others no faster")
      << "d, too, had its bytes from there, and at a higher rate";
}

TEST_F(SlowestWorkerTest, WaitsForTheOriginThatStillMakesWhatItSends) {
  WorkerCourse& a = add(1, 0, 3s);
  a.payload = patch_of(Version{7}, Version{6});
  record.made[a.payload] = {start, start + 3s};
  EXPECT_EQ(slowest().cause, SlowCause::kOrigin);
  EXPECT_EQ(slowest().why, "the origin took 3.00 s to encode its patch");
  add(2, 1, 3s + 20ms).payload = a.payload;
  EXPECT_EQ(slowest().cause, SlowCause::kParent);
  EXPECT_EQ(slowest().why, "it waited for its parent a; the origin took 3.00 s to encode its patch");
}

// A patch that nobody in question waited for says nothing of them.
TEST_F(SlowestWorkerTest, DidNotWaitForWhatTheOriginMadeForOthers) {
  add(1, 0, 3s);
  record.made[patch_of(Version{7}, Version{3})] = {start + 5s, start + 600s};
  record.made[packed_of(Version{7})] = {start, start + 3s};
  EXPECT_EQ(slowest().cause, SlowCause::kLink) << "it was sent the version as it is";
  WorkerCourse& b = add(2, 0, 4s);
  *b.told_at += 5s, *b.installed_at += 5s;
  EXPECT_EQ(slowest().why, "the origin took 3.00 s to pack it") << "before it was told";
}

TEST_F(SlowestWorkerTest, WasToldLateByAnOriginThatComparedFirst) {
  record.made[patch_of(Version{7}, Version{6})] = {start, start + 3s};
  WorkerCourse& a = add(1, 0, 10ms);
  *a.told_at += 2s, *a.installed_at += 2s;
  EXPECT_EQ(slowest().cause, SlowCause::kOrigin);
  EXPECT_THAT(slowest().why, HasSubstr("encode its patch"));
}

TEST_F(SlowestWorkerTest, JoinedLate) {
  add(1, 0, 1s);
  WorkerCourse& b = add(2, 0, 500ms);
  b.joined_at = start + 4s;
  b.told_at = start + 4s;
  *b.installed_at += 4s;
  EXPECT_EQ(slowest().cause, SlowCause::kJoinedLate);
  EXPECT_EQ(slowest().why, "it joined 4.00 s after the publication had begun");
}

TEST_F(SlowestWorkerTest, WasGoneMeanwhileAndBeganAnew) {
  add(1, 0, 1s);
  WorkerCourse& b = add(2, 0, 500ms);
  b.rejoined_at = start + 3s;
  *b.installed_at += 3s;
  EXPECT_EQ(slowest().cause, SlowCause::kReconnected);
  EXPECT_EQ(slowest().why, "it was gone, and back 2.99 s after it was told");
  b.phases->receiving += 2s + 500ms;  // it went on meanwhile: nothing was lost by that
  EXPECT_EQ(slowest().cause, SlowCause::kLink);
}

TEST_F(SlowestWorkerTest, FinishedTheVersionBeforeFirst) {
  change(add(1, 0, 1s), [](InstallPhases& phases) { phases.waiting = 2s; });
  EXPECT_EQ(slowest().cause, SlowCause::kVersionBefore);
  EXPECT_EQ(slowest().why, "it finished the version before first, for 2.00 s");
  record.courses.at(PeerId{1}).failure = "the disk is full";
  EXPECT_EQ(slowest().cause, SlowCause::kFailed);
  EXPECT_EQ(slowest().why, "it could not install it at first: the disk is full");
}

TEST_F(SlowestWorkerTest, GaveUpAnotherPayloadOfTheVersion) {
  change(add(1, 0, 1s), [](InstallPhases& phases) { phases.waiting = 3s, phases.given_up = 2s; });
  EXPECT_EQ(slowest().cause, SlowCause::kGaveUp);
  EXPECT_EQ(slowest().why, "it gave up another payload of the version, after 2.00 s");
}

TEST_F(SlowestWorkerTest, DoesNotSayWhereMostOfItsTimeWent) {
  *add(1, 0, 1s).installed_at += 5s;
  EXPECT_EQ(slowest().cause, SlowCause::kUnknown);
  EXPECT_EQ(slowest().why, "it does not say where 5.00 s went");
  record.courses.at(PeerId{1}).rejoined_at = record.courses.at(PeerId{1}).installed_at;
  EXPECT_EQ(slowest().cause, SlowCause::kReconnected) << "its word that it had the version came with that";
  EXPECT_EQ(slowest().why, "it was gone, and back 6.03 s after it was told");
}

TEST_F(SlowestWorkerTest, LeftLongAfterTheOthersHadIt) {
  add(1, 0, 2s);
  WorkerCourse& b = record.courses[PeerId{2}];
  b.name = "b";
  b.left_at = start + 60s;
  EXPECT_EQ(slowest().id, PeerId{2});
  EXPECT_EQ(slowest().cause, SlowCause::kLeft);
  EXPECT_EQ(slowest().why, "it left 60.00 s after the publication had begun, without the version");
  b.left_at = start + 1s;
  EXPECT_EQ(slowest().id, PeerId{1}) << "nobody waited for b any more";
}

TEST_F(SlowestWorkerTest, AppliesForLong) {
  change(add(1, 0, 1s), [](InstallPhases& phases) { phases.applying = 3s; });
  EXPECT_EQ(slowest().cause, SlowCause::kApplying);
  EXPECT_EQ(slowest().why, "it took 3.00 s to apply and install it");
}

TEST_F(SlowestWorkerTest, HasASlowDisk) {
  change(add(1, 0, 3s), [](InstallPhases& phases) { phases.disk_behind = 2s, phases.storing = 500ms; });
  EXPECT_EQ(slowest().cause, SlowCause::kDisk);
  EXPECT_EQ(slowest().why, "it waited 2.50 s for its disk");
  add(2, 1, 3s + 50ms);
  EXPECT_EQ(slowest().id, PeerId{1}) << "it has it on its own disk first";
  change(record.courses.at(PeerId{2}), [](InstallPhases& phases) { phases.applying = 1s; });
  EXPECT_EQ(slowest().why, "it waited for its parent a; a: it waited 2.50 s for its disk");
}

TEST_F(SlowestWorkerTest, CountsNoTimeAtItsDiskTwice) {
  change(add(1, 0, 1s), [](InstallPhases& phases) { phases.disk_behind = 5s, phases.storing = 500ms; });
  EXPECT_EQ(slowest().why, "it waited 1.50 s for its disk") << "receiving took no longer than a second";
}

TEST_F(SlowestWorkerTest, LostParents) {
  change(add(1, 0, 3s), [](InstallPhases& phases) { phases.interrupted = 2s, phases.parents_left = 2; });
  EXPECT_EQ(slowest().cause, SlowCause::kLostParents);
  EXPECT_EQ(slowest().why, "it left 2 of its parents, and was without chunks for 2.00 s");
}

TEST_F(SlowestWorkerTest, OfAnOlderReleaseSaysNothing) {
  add(1, 0, 3s).phases.reset();
  EXPECT_EQ(slowest().cause, SlowCause::kUnknown);
  EXPECT_THAT(slowest().why, StartsWith("it does not say"));
}

// Two who say that each was fed by the other, and one that names who is not known.
TEST_F(SlowestWorkerTest, WhatLiarsSayIsShownAndEnds) {
  add(1, 2, 3s), add(2, 1, 3s);
  EXPECT_EQ(slowest().cause, SlowCause::kLink);
  record.courses.clear();
  add(1, 9, 3s);
  EXPECT_THAT(slowest().why, HasSubstr("a worker that is not known any more"));
  change(add(2, 0, 4s), [](InstallPhases& phases) { phases.interrupted = phases.disk_behind = 1'000'000s; });
  EXPECT_EQ(slowest().id, PeerId{2});
  record.courses.clear();
  record.taking_over = {};  // it was there before the origin started
  WorkerCourse& a = add(1, 0, 1ns);
  a.told_at = start, *a.installed_at -= 10ms;
  change(a, [](InstallPhases& phases) {
    phases = {};
    phases.receiving = 1ns;
    phases.bytes = phases.fed_bytes = kPayloadBytesMax;
  });
  EXPECT_EQ(slowest().why, "its link brought 931322574.62 GiB/s from trainer");
}

// All received for longer than the fault lasted.
TEST_F(SlowestWorkerTest, IsComparedWithWhatTheOthersHad) {
  add(1, 0, 20s), add(2, 0, 20s + 10ms);
  change(add(3, 0, 20s), [](InstallPhases& phases) {
    phases.receiving += 1s + 300ms, phases.interrupted = 1s + 300ms, phases.parents_left = 1;
  });
  EXPECT_EQ(slowest().why, "it left 1 of its parents, and was without chunks for 1.30 s");
  change(record.courses.at(PeerId{2}), [](InstallPhases& phases) { phases.applying = 9s; });
  EXPECT_EQ(slowest().why, "it took 9.00 s to apply and install it");
  change(add(4, 0, 20s), [](InstallPhases& phases) { phases.receiving += 15s, phases.disk_behind = 15s; });
  EXPECT_EQ(slowest().why, "it waited 15.00 s for its disk");
  change(add(5, 0, 20s), [](InstallPhases& phases) { phases.waiting = 18s; });
  EXPECT_EQ(slowest().cause, SlowCause::kVersionBefore);
}

TEST_F(SlowestWorkerTest, BehindARelayThatLostItsOwnParent) {
  add(1, 0, 20s);
  change(add(2, 1, 20s), [](InstallPhases& phases) {
    phases.receiving += 1s + 300ms, phases.interrupted = 1s + 200ms, phases.parents_left = 1;
  });
  add(3, 2, 21s + 330ms);
  EXPECT_EQ(slowest().why,
            "it waited for its parent b; b: it left 1 of its parents, and was without chunks for 1.20 s");
}

TEST_F(SlowestWorkerTest, StoodStillWhileOthersWentOn) {
  add(1, 0, 20s), add(2, 0, 20s);
  WorkerCourse& c = add(3, 0, 24s);
  EXPECT_EQ(slowest().cause, SlowCause::kLink);
  c.left_as_silent = 2;
  EXPECT_EQ(slowest().cause, SlowCause::kStalled);
  EXPECT_EQ(slowest().why, "it stood still: 2 workers left it as silent");
  c.gone = 3s, c.rejoined_at = start + 10s;
  EXPECT_EQ(slowest().cause, SlowCause::kReconnected);
  EXPECT_EQ(slowest().why, "it was gone for 3.00 s");
}

TEST_F(SlowestWorkerTest, SharesAnotherParentBecauseItCouldNotReachItsOwn) {
  add(1, 0, 20s);
  WorkerCourse& b = add(2, 0, 20s + 20ms);
  EXPECT_EQ(slowest().cause, SlowCause::kLink);
  b.unreached = "a at 10.0.0.1:7400 (connection refused)";
  EXPECT_EQ(slowest().cause, SlowCause::kUnreachable);
  EXPECT_EQ(slowest().why,
            "it could not reach a at 10.0.0.1:7400 (connection refused); its link brought 585.2 KiB/s from trainer, "
            "which fed 1 other no faster");
}

TEST_F(SlowestWorkerTest, OfASlowEncoderWaitsForTheOriginThoughTheTransferOutlastsIt) {
  const PayloadId patch = patch_of(Version{7}, Version{6});
  record.made[patch] = {start, start + 4s};
  record.predicted = 6s;
  add(1, 0, 10s).payload = patch;
  add(2, 0, 10s).payload = patch;
  EXPECT_EQ(slowest().cause, SlowCause::kOrigin);
  EXPECT_EQ(slowest().why, "the origin took 4.00 s to encode its patch");
  record.predicted = 10s;  // so slow are the links that the encoder held nobody up
  EXPECT_EQ(slowest().cause, SlowCause::kLink);
  record.predicted = 1s;  // the links are far slower than planned
  EXPECT_EQ(slowest().cause, SlowCause::kLink);
}

TEST_F(SlowestWorkerTest, CountsNobodyWhoWasFedFaster) {
  add(1, 0, 3s + 200ms), add(2, 0, 3s + 600ms), add(3, 0, 4s);
  EXPECT_EQ(slowest().why, "its link brought 2.9 MiB/s from trainer") << "the others were a tenth and a quarter faster";
}

TEST_F(SlowestWorkerTest, HadAllOfItAlready) {
  change(add(1, 0, 1s), [](InstallPhases& phases) { phases.asking = 2s, phases.bytes = phases.fed_bytes = 0; });
  EXPECT_EQ(slowest().cause, SlowCause::kDisk);
  EXPECT_EQ(slowest().why, "all was there already, and took 3.00 s to read");
}

}  // namespace
}  // namespace weightcast
