// Reads like the tables in fault_attribution.h: who is blamed for what a child reports, and who feeds nobody after it.
#include "transport/core/origin/relays/fault_attribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/payload_fixture.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr PayloadId kPayload{Version{7}};
constexpr PayloadId kNext{Version{8}};
constexpr PeerId kA{1}, kB{2}, kC{3}, kD{4}, kE{5};

/// A chain: origin, A, B, C, D; and E, a second leaf below C.
struct FaultAttributionTest : testing::Test {
  FaultAttributionTest() {
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      Member& member = members.by_name(name);
      members.connect(member, ConnId{member.id.value});
      member.receiving = kPayload;
      plan.members.push_back(member.id);
    }
    plan.stripes = {{1, {kOriginId, kA, kB, kC, kC}}};
    holdings.emplace(kPayload, Holding(manifest_of(kPayload.version, kChunks)));
    holdings.at(kPayload).restore(chunk_digests(kPayload.version, kChunks), ChunkSet(kChunks, true));
  }
  bool report(PeerId child, PeerId parent, wire::FaultKind kind) {
    return faults.handle_report(now, plan, {kPayload, child, parent, 0, kind, false, {}});
  }
  /// It has got nothing for so long, and stays.
  bool report(PeerId child, PeerId parent, wire::FaultKind kind, Duration starving) {
    return faults.handle_report(now, plan, {kPayload, child, parent, 0, kind, true, starving});
  }
  /// As a child does that gets nothing: every half second, while it and others that say the same are heard.
  struct Saying {
    PeerId child, parent;
    wire::FaultKind kind = wire::FAULT_KIND_STARVED;
    bool moves = false;  // its last chunk is always one second old
  };
  void starve(const std::vector<Saying>& all, int times = 4) {
    for (int i = 0; i < times; ++i) {
      for (auto& [id, member] : members.all()) member.heard_at = member.progress_at = now;
      for (const auto& [child, parent, kind, moves] : all) {
        (void)report(child, parent, kind, 1s + (moves ? 0 : i) * 500ms);
      }
      now += 500ms;
    }
  }
  std::vector<PeerId> leaves() const {
    std::vector<PeerId> found;
    for (const PeerId id : plan.members) {
      if (faults.is_leaf(kPayload, id)) found.push_back(id);
    }
    return found;
  }
  /// Whose score has fallen.
  std::vector<PeerId> blamed() const {
    std::vector<PeerId> found;
    for (const auto& [id, member] : members.all()) {
      if (!member.score.empty()) found.push_back(id);
    }
    return found;
  }
  /// Parents that feed this child no more.
  std::vector<PeerId> apart_from(PeerId child) const {
    std::vector<PeerId> parents;
    for (const ApartPair& pair : faults.apart(kPayload)) {
      if (pair.child == child) parents.push_back(pair.parent);
    }
    return parents;
  }
  Member& member(PeerId id) { return *members.find(id); }
  /// The origin's own chunks have left to A: so many.
  void send_to_a(int chunks) {
    if (!uploads.is_child(ConnId{99})) {
      uploads.handle_hello(ConnId{99}, {kA, "a"});
      wire::Subscribe request;
      set_payload(request, kPayload);
      ASSERT_TRUE(uploads.handle_subscribe(now, ConnId{99}, request).has_value());
    }
    for (int i = 0; i < chunks; ++i) uploads.handle_chunk_sent(ConnId{99});
  }

  static constexpr std::uint32_t kChunks = 1000;
  Membership members;
  ActionQueue actions;
  Timeouts timeouts;
  Holdings holdings;
  Uploads uploads{timeouts, holdings, actions};
  RateProbes rates{members, actions, Rate{}};
  FaultAttribution faults{members, uploads, actions, rates};
  Plan plan;
  Instant now{1h};
};

TEST_F(FaultAttributionTest, OneComplaintKeepsTheTwoApartAndBlamesNobody) {
  EXPECT_TRUE(report(kB, kA, wire::FAULT_KIND_CLOSED));
  EXPECT_TRUE(report(kC, kB, wire::FAULT_KIND_CORRUPT));
  EXPECT_TRUE(report(kD, kC, wire::FAULT_KIND_SILENT));
  EXPECT_THAT(apart_from(kB), ElementsAre(kA));
  EXPECT_THAT(apart_from(kC), ElementsAre(kB));
  EXPECT_THAT(apart_from(kD), ElementsAre(kC));
  EXPECT_THAT(blamed(), IsEmpty());
  EXPECT_THAT(leaves(), IsEmpty());
}

TEST_F(FaultAttributionTest, ALaterPublicationClearsWhoDidWellInItOfAnOffenceByOthersWord) {
  (void)report(kD, kC, wire::FAULT_KIND_SILENT);
  (void)report(kE, kC, wire::FAULT_KIND_SILENT);
  faults.note_offence(kA, "tried to join as b");
  ASSERT_FALSE(member(kC).offence.empty());
  const std::set<PeerId> all{kA, kB, kC, kD, kE};
  for (const PeerId id : all) member(id).installed = kPayload.version;
  faults.handle_publication_end(kPayload.version, all);
  EXPECT_FALSE(member(kC).offence.empty()) << "it is of this publication";
  faults.handle_publication_end(kNext.version, all);
  EXPECT_FALSE(member(kC).offence.empty()) << "it has not received the next one";
  for (const PeerId id : all) member(id).installed = kNext.version;
  faults.handle_publication_end(kNext.version, all);
  EXPECT_TRUE(member(kC).offence.empty());
  EXPECT_FALSE(faults.in_dispute(kC));
  EXPECT_FALSE(member(kA).offence.empty()) << "that the origin has seen itself";
}

TEST_F(FaultAttributionTest, TwoChildrenConvictTheirParent) {
  EXPECT_TRUE(report(kD, kC, wire::FAULT_KIND_CORRUPT));
  EXPECT_TRUE(report(kE, kC, wire::FAULT_KIND_CORRUPT));
  EXPECT_THAT(blamed(), ElementsAre(kC));
  EXPECT_THAT(leaves(), ElementsAre(kC));
  EXPECT_EQ(member(kC).offence, "sends damaged bytes, by the word of d, e");
  EXPECT_EQ(faults.complaints_of(kC), 2u);
}

TEST_F(FaultAttributionTest, TheSecondWitnessMayComeInALaterPublication) {
  EXPECT_TRUE(report(kD, kC, wire::FAULT_KIND_SILENT));
  faults.forget(kPayload);
  faults.handle_publication_end(kPayload.version, {kC, kD, kE});
  EXPECT_TRUE(report(kE, kC, wire::FAULT_KIND_SILENT));
  EXPECT_THAT(blamed(), ElementsAre(kC));
}

TEST_F(FaultAttributionTest, OneChildNeverBarsItsParentHoweverOftenItSaysThatItGetsDamagedBytes) {
  for (int publication = 0; publication < 100; ++publication) {
    for (int i = 0; i < 10; ++i) (void)report(kD, kC, wire::FAULT_KIND_CORRUPT);
    faults.forget(kPayload);
    faults.handle_publication_end(kPayload.version, {kA, kB, kC, kD, kE});
  }
  EXPECT_EQ(member(kC).standing.standing(), Standing::kSeed);
  EXPECT_EQ(member(kC).standing.record().corrupt, 0u);
}

TEST_F(FaultAttributionTest, WhoIsConvictedOfSlownessMayStillForwardAsLongAsNobodyKnowsItsUplink) {
  for (const bool is_known : {false, true}) {
    if (is_known) member(kC).uplink = Rate::bits(100e6);
    member(kC).standing = PeerStanding({.standing = Standing::kTail, .strikes = PeerStanding::kStrikesToDemote - 1});
    (void)report(kD, kC, wire::FAULT_KIND_SLOW);
    (void)report(kE, kC, wire::FAULT_KIND_SLOW);
    faults.handle_publication_end(kPayload.version, {kC});
    faults.forget(kPayload);
    EXPECT_EQ(member(kC).standing.standing(), is_known ? Standing::kRolloutOnly : Standing::kTail);
  }
}

TEST_F(FaultAttributionTest, TwoWhoConspireCannotKeepAnHonestRelayDown) {
  int kept_down = 0;
  for (int publication = 0; publication < 200; ++publication) {
    (void)report(kD, kC, wire::FAULT_KIND_CORRUPT);
    (void)report(kE, kC, wire::FAULT_KIND_CORRUPT);
    faults.forget(kPayload);
    faults.handle_publication_end(kPayload.version, {kA, kB, kC, kD, kE});
    kept_down += member(kC).standing.standing() == Standing::kSeed ? 0 : 1;
  }
  EXPECT_LT(kept_down, 200);
}

TEST_F(FaultAttributionTest, WhoComplainsOfEverybodyIsTheSuspectAndItsWordCountsForNothing) {
  EXPECT_TRUE(report(kD, kC, wire::FAULT_KIND_CORRUPT));
  plan.stripes[0].parents[3] = kB;
  EXPECT_TRUE(report(kD, kB, wire::FAULT_KIND_CLOSED));
  EXPECT_THAT(leaves(), ElementsAre(kD));
  EXPECT_THAT(blamed(), IsEmpty()) << "both may be liars; who knows";
  EXPECT_THAT(member(kD).offence, testing::HasSubstr("of whom nobody else complains"));
  EXPECT_TRUE(report(kE, kC, wire::FAULT_KIND_CORRUPT));
  EXPECT_THAT(blamed(), IsEmpty()) << "E is the first witness against C";
  plan.stripes[0].parents[3] = kA;
  EXPECT_TRUE(report(kD, kA, wire::FAULT_KIND_CORRUPT)) << "it may be right, and gets another parent";
  EXPECT_THAT(apart_from(kD), testing::Contains(kA));
  EXPECT_EQ(faults.complaints_of(kA), 0u);
}

TEST_F(FaultAttributionTest, ComplaintIsRepeatedForEachPlanThatStillHasTheEdge) {
  EXPECT_TRUE(report(kD, kC, wire::FAULT_KIND_CORRUPT));
  const auto of_the_next = [&] {
    return faults.handle_report(now, plan, {kNext, kD, kC, 0, wire::FAULT_KIND_CORRUPT, false, {}});
  };
  EXPECT_TRUE(of_the_next()) << "that plan was made before";
  plan.stripes[0].parents[3] = kB;
  EXPECT_FALSE(of_the_next()) << "it is repaired";
  EXPECT_EQ(faults.complaints_of(kC), 1u);
}

TEST_F(FaultAttributionTest, LeafBehindASlowEdgeIsAWitnessToDamage) {
  EXPECT_TRUE(report(kA, kOriginId, wire::FAULT_KIND_SLOW));
  EXPECT_THAT(leaves(), ElementsAre(kA));
  plan.stripes[0].parents[0] = kD;
  for (const auto kind : {wire::FAULT_KIND_SLOW, wire::FAULT_KIND_SILENT, wire::FAULT_KIND_CLOSED}) {
    EXPECT_FALSE(report(kA, kD, kind)) << "its own link is slow";
  }
  EXPECT_TRUE(report(kA, kD, wire::FAULT_KIND_CORRUPT)) << "else it would be left to a parent that damages";
  EXPECT_THAT(apart_from(kA), ElementsAre(kD));
  plan.stripes[0].parents[4] = kD;
  EXPECT_TRUE(report(kE, kD, wire::FAULT_KIND_CORRUPT));
  EXPECT_THAT(leaves(), ElementsAre(kA, kD));
}

TEST_F(FaultAttributionTest, WhatTheOriginHasSeenItselfNeedsNoWitness) {
  EXPECT_TRUE(report(kC, kB, wire::FAULT_KIND_CLOSED));
  faults.handle_lost(now, kB);
  EXPECT_THAT(blamed(), ElementsAre(kB));
  EXPECT_THAT(apart_from(kC), IsEmpty()) << "and C has its voice back";
  members.disconnect(member(kC));
  EXPECT_TRUE(report(kD, kC, wire::FAULT_KIND_CLOSED));
  EXPECT_THAT(blamed(), ElementsAre(kB, kC));
  EXPECT_THAT(leaves(), ElementsAre(kC));
}

TEST_F(FaultAttributionTest, ParentThatHasNotGotThePayloadDoesNotFeedThatChildAndIsNotBlamed) {
  EXPECT_TRUE(report(kB, kA, wire::FAULT_KIND_NOT_AVAILABLE));
  EXPECT_FALSE(report(kB, kA, wire::FAULT_KIND_NOT_AVAILABLE));
  EXPECT_THAT(apart_from(kB), ElementsAre(kA));
  EXPECT_THAT(blamed(), IsEmpty());
  EXPECT_THAT(leaves(), IsEmpty());
  faults.forget(kPayload);
  EXPECT_THAT(apart_from(kB), IsEmpty());
}

TEST_F(FaultAttributionTest, WhoSaysThatNobodyHasThePayloadDoesNotHaveThePlanRepairedWithoutEnd) {
  int repairs = 0;
  for (std::uint32_t i = 100; i < 200; ++i) {
    plan.stripes[0].parents[1] = PeerId{i};
    repairs += report(kB, PeerId{i}, wire::FAULT_KIND_NOT_AVAILABLE) ? 1 : 0;
  }
  EXPECT_LE(repairs, 8);
}

TEST_F(FaultAttributionTest, OnlyWhoIsMeantToFeedAChildCanFailIt) {
  EXPECT_FALSE(report(kC, kA, wire::FAULT_KIND_CLOSED));
  EXPECT_FALSE(report(kC, kC, wire::FAULT_KIND_CLOSED));
  EXPECT_FALSE(report(PeerId{77}, kA, wire::FAULT_KIND_CLOSED));
  EXPECT_FALSE(report(kA, kOriginId, wire::FAULT_KIND_CLOSED)) << "the origin is never blamed";
  EXPECT_THAT(blamed(), IsEmpty());
}

TEST_F(FaultAttributionTest, OfASlowEdgeTheChildFeedsNobody) {
  EXPECT_TRUE(report(kB, kA, wire::FAULT_KIND_SLOW));
  EXPECT_THAT(blamed(), IsEmpty());
  EXPECT_THAT(leaves(), ElementsAre(kB));
  EXPECT_THAT(apart_from(kB), ElementsAre(kA));
}

TEST_F(FaultAttributionTest, WhoCallsARelayAndTheOriginSlowIsBlamedItself) {
  EXPECT_TRUE(report(kD, kC, wire::FAULT_KIND_SLOW));
  plan.stripes[0].parents[3] = kOriginId;
  EXPECT_TRUE(report(kD, kOriginId, wire::FAULT_KIND_SLOW));
  EXPECT_THAT(blamed(), ElementsAre(kD));
  EXPECT_THAT(leaves(), ElementsAre(kD));
}

TEST_F(FaultAttributionTest, WhoCallsARelayAndTheOriginSilentFeedsNobodyButIsNotBlamed) {
  EXPECT_TRUE(report(kB, kA, wire::FAULT_KIND_SILENT));
  plan.stripes[0].parents[1] = kOriginId;
  EXPECT_TRUE(report(kB, kOriginId, wire::FAULT_KIND_SILENT));
  EXPECT_THAT(blamed(), IsEmpty());
  EXPECT_THAT(leaves(), ElementsAre(kB));
}

TEST_F(FaultAttributionTest, RelayThatTheOriginFeedsSlowlyFeedsNobody) {
  EXPECT_TRUE(report(kA, kOriginId, wire::FAULT_KIND_SLOW));
  EXPECT_THAT(blamed(), IsEmpty());
  EXPECT_THAT(leaves(), ElementsAre(kA));
}

TEST_F(FaultAttributionTest, OriginThatIsSlowItselfMakesOneLeafAtMost) {
  plan.stripes[0].parents = {kOriginId, kOriginId, kA, kB, kB};
  EXPECT_TRUE(report(kA, kOriginId, wire::FAULT_KIND_SLOW));
  EXPECT_FALSE(report(kB, kOriginId, wire::FAULT_KIND_SLOW)) << "or else it would feed ever more of them";
}

TEST_F(FaultAttributionTest, NobodyBecomesALeafWhereMostRelaysSeemToFail) {
  for (const PeerId id : {kA, kB, kC}) {
    members.disconnect(member(id));
    EXPECT_TRUE(report(id == kA ? kB : id == kB ? kC : kD, id, wire::FAULT_KIND_CLOSED));
  }
  plan.stripes[0].parents[4] = kD;
  members.disconnect(member(kD));
  EXPECT_FALSE(report(kE, kD, wire::FAULT_KIND_CLOSED));
}

// ---- starvation

TEST_F(FaultAttributionTest, RelayThatDoesNotStarveLosesTheChildThatDoesWithinHalfASecondOfReports) {
  starve({{kC, kB}, {kD, kC}, {kE, kC}}, 2);
  EXPECT_THAT(apart_from(kC), ElementsAre(kB)) << "C and those below it say that they get nothing; B and A do not";
  EXPECT_THAT(apart_from(kD), IsEmpty());
  EXPECT_THAT(blamed(), IsEmpty());
}

TEST_F(FaultAttributionTest, RelayWhoseChildrenBothStarveIsBlamed) {
  starve({{kD, kC}, {kE, kC}}, 2);
  EXPECT_THAT(blamed(), ElementsAre(kC));
  EXPECT_THAT(leaves(), ElementsAre(kC));
}

TEST_F(FaultAttributionTest, OneReportBlamesNobody) {
  starve({{kC, kB}}, 1);
  EXPECT_THAT(apart_from(kC), IsEmpty());
}

TEST_F(FaultAttributionTest, WhenTheOriginStopsNobodyIsBlamed) {
  starve({{kA, kOriginId, wire::FAULT_KIND_WAITING}, {kB, kA}, {kC, kB}, {kD, kC}, {kE, kC}}, 20);
  EXPECT_THAT(blamed(), IsEmpty());
  EXPECT_THAT(leaves(), IsEmpty());
  EXPECT_THAT(faults.apart(kPayload), IsEmpty());
}

TEST_F(FaultAttributionTest, ReportsThatAllComeAtOnceAfterAStallOfTheOriginBlameNobody) {
  for (auto& [id, member] : members.all()) member.heard_at = now;
  for (int i = 0; i < 10; ++i) {
    (void)report(kC, kB, wire::FAULT_KIND_STARVED, 1s + i * 500ms);
  }
  EXPECT_THAT(faults.apart(kPayload), IsEmpty());
}

TEST_F(FaultAttributionTest, RelayThatTheOriginDoesNotHearMayStarveForAllThatIsKnown) {
  for (int i = 0; i < 4; ++i) {
    (void)report(kC, kB, wire::FAULT_KIND_STARVED, 1s + i * 500ms);
    now += 500ms;
  }
  EXPECT_THAT(faults.apart(kPayload), IsEmpty());
}

TEST_F(FaultAttributionTest, RelayIsNotBlamedForWhatOneChildSaysWhateverItHasByItsOwnWord) {
  // With two streams to the origin chunks may be on a stream that has stalled: they have left, and have not come.
  plan.stripes[0].parents = {kOriginId, kA, kOriginId, kOriginId, kOriginId};
  send_to_a(20);
  member(kA).chunks_verified = 4;
  starve({{kB, kA}});
  EXPECT_THAT(blamed(), IsEmpty());
  EXPECT_THAT(apart_from(kB), ElementsAre(kA));
}

TEST_F(FaultAttributionTest, SeedThatSaysThatItStarvesWhileTheOriginsChunksLeaveToItIsBlamed) {
  for (int i = 0; i < 6; ++i) {
    send_to_a(5);
    (void)report(kA, kOriginId, wire::FAULT_KIND_WAITING, 5s + i * 500ms);
    now += 500ms;
  }
  EXPECT_THAT(blamed(), ElementsAre(kA));
  EXPECT_THAT(leaves(), ElementsAre(kA));
}

// Its last chunk came before its last report, which did not know of it.
TEST_F(FaultAttributionTest, SeedThatNamesANewStarvationInEachReportIsDisprovedAllTheSame) {
  for (int i = 0; i < 4; ++i) {
    send_to_a(5);
    (void)report(kA, kOriginId, wire::FAULT_KIND_WAITING, 1s);
    now += 500ms;
  }
  EXPECT_THAT(leaves(), ElementsAre(kA));
}

TEST_F(FaultAttributionTest, SeedThatNamesAnotherParentInEachReportIsDisprovedAllTheSame) {
  for (int i = 0; i < 4; ++i) {
    send_to_a(5);
    const PeerId parent = i % 2 == 0 ? kOriginId : PeerId{i % 4 == 1 ? 5u : 77u};
    (void)report(kA, parent, wire::FAULT_KIND_WAITING, 1s + i * 500ms);
    now += 500ms;
  }
  EXPECT_THAT(leaves(), ElementsAre(kA));
}

TEST_F(FaultAttributionTest, SeedThatGetsAChunkNowAndThenIsBelieved) {
  // The origin's uplink is slow: a chunk every two seconds, of which the seed says each time that it came.
  for (int chunk = 0; chunk < 6; ++chunk) {
    send_to_a(1);
    for (const Duration since : {1000ms, 1500ms}) {
      (void)faults.handle_report(now + since, plan,
                                 {kPayload, kA, kOriginId, 0, wire::FAULT_KIND_WAITING, true, since});
    }
    now += 2s;
  }
  EXPECT_THAT(blamed(), IsEmpty());
}

TEST_F(FaultAttributionTest, SeedThatSaysSoTwiceInOneMomentIsNoLessDisproved) {
  for (int i = 0; i < 6; ++i) {
    send_to_a(5);
    for (int twice = 0; twice < 2; ++twice) {
      (void)report(kA, kOriginId, wire::FAULT_KIND_WAITING, 1s + i * 500ms);
    }
    now += 500ms;
  }
  EXPECT_THAT(blamed(), ElementsAre(kA));
}

TEST_F(FaultAttributionTest, SeedThatNamesANewStarvationInEachReportIsNotExcusedByIt) {
  starve({{kA, kOriginId, wire::FAULT_KIND_WAITING, true}, {kB, kA}, {kC, kB}, {kD, kC}, {kE, kC}}, 6);
  EXPECT_THAT(apart_from(kB), ElementsAre(kA)) << "it names chunks that came after the last one that B got";
}

TEST_F(FaultAttributionTest, RelayThatGetsChunksByItsOwnWordIsNotExcusedByAChildThatOnlyWaits) {
  starve({{kA, kOriginId, wire::FAULT_KIND_WAITING, true}, {kB, kA, wire::FAULT_KIND_WAITING}}, 6);
  EXPECT_THAT(apart_from(kB), ElementsAre(kA));
}

TEST_F(FaultAttributionTest, RelayThatHasAChunkMoreThanItsChildIsExcusedWhileThatMayBeOnItsWay) {
  starve({{kB, kA}, {kA, kOriginId, wire::FAULT_KIND_WAITING}}, 2);
  for (int i = 0; i < 6; ++i) {
    for (auto& [id, member] : members.all()) member.heard_at = member.progress_at = now;
    (void)report(kA, kOriginId, wire::FAULT_KIND_WAITING, 1s + i * 500ms);
    (void)report(kB, kA, wire::FAULT_KIND_STARVED, 2s + i * 500ms);
    now += 500ms;
  }
  EXPECT_THAT(blamed(), IsEmpty());
}

TEST_F(FaultAttributionTest, WordOfAParentThatThePlanDoesNotNameExoneratesTheChildAndAccusesNobody) {
  starve({{kB, kOriginId, wire::FAULT_KIND_WAITING}, {kC, kB}, {kD, kC}, {kE, kC}}, 6);
  EXPECT_THAT(blamed(), IsEmpty()) << "B has left A on its own, and starves";
  starve({{kC, kA}}, 6);
  EXPECT_THAT(leaves(), IsEmpty());
}

TEST_F(FaultAttributionTest, RelayThatSaysForEverThatItWaitsForOneThatDoesNotStarveLosesTheChildThatLeaves) {
  starve({{kB, kA, wire::FAULT_KIND_WAITING}, {kC, kB}, {kD, kC}, {kE, kC}}, 18);
  EXPECT_THAT(apart_from(kC), IsEmpty());
  EXPECT_TRUE(report(kC, kB, wire::FAULT_KIND_STARVED));
  EXPECT_THAT(apart_from(kC), ElementsAre(kB));
}

TEST_F(FaultAttributionTest, RelayThatSaysForEverThatItWaitsLosesItsPlaceByWhatItLacks) {
  const auto lacks = [&](PeerId id, double chunks) {
    return faults.handle_progress(now, plan, kPayload, id, {static_cast<std::uint32_t>(std::max(0.0, chunks))});
  };
  bool changed = false;
  for (int i = 0; i < 12; ++i, now += 500ms) {
    changed = lacks(kA, 1000 - 50 * i) || changed;
    for (const PeerId id : {kB, kC, kD, kE}) changed = lacks(id, 1000 - i) || changed;
  }
  EXPECT_TRUE(changed);
  EXPECT_THAT(apart_from(kB), ElementsAre(kA)) << "A has far more than B; all others wait for B";
  EXPECT_THAT(faults.apart(kPayload).size(), 1u);
  // B says the same of its next parent: it is B.
  plan.stripes[0].parents = {kOriginId, kC, kA, kC, kC};
  for (int i = 0; i < 12; ++i, now += 500ms) {
    (void)lacks(kA, 400 - 50 * i);
    for (const PeerId id : {kC, kD, kE}) (void)lacks(id, 980 - 50 * i);
    (void)lacks(kB, 980 - i);
  }
  EXPECT_THAT(leaves(), ElementsAre(kB));
}

TEST_F(FaultAttributionTest, WhoSendsDamageDoesNotGetAwayByAChangeOfThePlan) {
  plan.stripes[0].parents = {kOriginId, kOriginId, kB, kB, kB};
  EXPECT_FALSE(report(kB, kA, wire::FAULT_KIND_CORRUPT)) << "A has never fed B";
  faults.handle_moved(now, kPayload, kA, kB);
  EXPECT_FALSE(report(kB, kA, wire::FAULT_KIND_SLOW));
  EXPECT_TRUE(report(kB, kA, wire::FAULT_KIND_CORRUPT));
  EXPECT_THAT(apart_from(kB), ElementsAre(kA));
  faults.handle_moved(now, kPayload, kA, kC);
  now += 6s;
  EXPECT_FALSE(report(kC, kA, wire::FAULT_KIND_CORRUPT));
}

TEST_F(FaultAttributionTest, ReportOfAParentThatThePlanDoesNotNameExoneratesItsAuthor) {
  for (int i = 0; i < 6; ++i, now += 500ms) {
    for (auto& [id, member] : members.all()) member.heard_at = member.progress_at = now;
    (void)report(kB, kOriginId, wire::FAULT_KIND_STARVED);  // B has left A on its own, and left the origin, too
    (void)report(kC, kB, wire::FAULT_KIND_STARVED, 1s + i * 500ms);
  }
  EXPECT_THAT(apart_from(kC), IsEmpty());
}

TEST_F(FaultAttributionTest, RelayThatWaitsForOneThatStarvesItselfIsNotBlamedWhenItsChildLeaves) {
  starve({{kA, kOriginId, wire::FAULT_KIND_WAITING}, {kB, kA, wire::FAULT_KIND_WAITING}, {kC, kB}, {kD, kC}}, 18);
  EXPECT_FALSE(report(kC, kB, wire::FAULT_KIND_STARVED));
  EXPECT_FALSE(report(kB, kA, wire::FAULT_KIND_STARVED)) << "the origin feeds A by the plan, and may be late";
  EXPECT_THAT(blamed(), IsEmpty());
  EXPECT_THAT(leaves(), IsEmpty());
}

TEST_F(FaultAttributionTest, ChildThatLeftAStarvingParentIsHeardIfTheParentHasMoreByItsOwnWord) {
  EXPECT_FALSE(report(kB, kA, wire::FAULT_KIND_STARVED));
  member(kA).chunks_verified = 50;
  EXPECT_TRUE(report(kB, kA, wire::FAULT_KIND_STARVED));
  EXPECT_THAT(apart_from(kB), ElementsAre(kA));
}

// ---- when it is cleared

TEST_F(FaultAttributionTest, LeavesAreThoseOfOnePublication) {
  members.disconnect(member(kA));
  EXPECT_TRUE(report(kB, kA, wire::FAULT_KIND_CLOSED));
  EXPECT_TRUE(faults.is_leaf(kPayload, kA));
  EXPECT_FALSE(faults.is_leaf(PayloadId(Version{8}), kA));
  faults.forget(kPayload);
  EXPECT_FALSE(faults.is_leaf(kPayload, kA));
}

TEST_F(FaultAttributionTest, StandingsChangeWhenAPublicationEnds) {
  members.disconnect(member(kA));
  for (int i = 0; i < 2; ++i) {
    (void)report(kB, kA, wire::FAULT_KIND_CLOSED);
    EXPECT_EQ(member(kA).standing.standing(), Standing::kSeed);
    faults.forget(kPayload);
    faults.handle_publication_end(kPayload.version, {kA, kB});
  }
  EXPECT_EQ(member(kA).standing.standing(), Standing::kTail);
}

TEST_F(FaultAttributionTest, WhoFedOthersWellRises) {
  const double before = member(kA).score.score(now, Rate{100});
  faults.handle_fed(now, {kA, kOriginId}, Rate{100});
  EXPECT_GT(member(kA).score.score(now, Rate{100}), before);
}

}  // namespace
}  // namespace weightcast
