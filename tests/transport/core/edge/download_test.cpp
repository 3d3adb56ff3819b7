#include "transport/core/edge/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/edge/download_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

TEST_F(DownloadTest, OneWhoIsToldToFeedItselfDialsTheNextAncestor) {
  start(assignment(1, {{kSelf.value, 2, 0}}));
  ASSERT_EQ(dialled.size(), 1u);
  EXPECT_EQ(dialled[0].port, 1002);
}

TEST_F(DownloadTest, NobodyButItselfAboveIsNoAssignment) {
  EXPECT_FALSE(download.assign(now, kSelf, assignment(1, {{kSelf.value}})).has_value());
}

TEST_F(DownloadTest, EarlyChunkThatIsWrongIsBlamedOnItsSenderAndNotOnWhoBroughtTheDigests) {
  start(assignment(1, {{2, 0}, {3, 0}}));
  ASSERT_EQ(dialled.size(), 2u);
  EXPECT_FALSE(download.handle_chunk(now, conn_to(2), chunk_of(kVersion, ChunkIndex{0}, true)));
  ASSERT_TRUE(take_part(3, part_of(kVersion, kChunks)).has_value());
  const auto faults = download.take_faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].parent, PeerId{2});
  EXPECT_EQ(faults[0].kind, wire::FAULT_KIND_CORRUPT);
}

TEST_F(DownloadTest, ParentWithoutTheVersionIsLeftWithoutBlameForItsConnection) {
  start(assignment(1, {{2, 0}}));
  download.handle_not_available(now, conn_to(2));
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_NOT_AVAILABLE));
  open_all();
  EXPECT_EQ(dialled.back().port, 1) << "the origin is next";
  EXPECT_FALSE(download.withdrawn());
  download.handle_not_available(now, conn_to(0));
  EXPECT_TRUE(download.withdrawn());
}

TEST_F(DownloadTest, OnceAllAncestorsHaveFailedThePauseBeforeTheNextDoubles) {
  start(assignment(1, {{2, 0}}));
  std::vector<Duration> pauses;
  for (int failures = 0; failures < 9; ++failures) {
    const std::size_t dialled_before = dialled.size();
    const ConnId conn = dialled.back().conn;
    links.handle_closed(conn);
    download.handle_closed(now, conn);
    open_all();
    const Instant failed_at = now;
    while (dialled.size() == dialled_before) {
      ASSERT_TRUE(download.poll_deadline());
      now = std::max(now, *download.poll_deadline());
      download.handle_timeout(now);
      open_all();
    }
    pauses.push_back(now - failed_at);
  }
  EXPECT_THAT(pauses, ElementsAre(0ms, 50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 2000ms, 2000ms));
}

// Such a one accepts connections, and neither shakes hands nor refuses.
TEST_F(DownloadTest, ParentThatCannotBeDialledIsLeftForOneThatIsDialledBesideIt) {
  ASSERT_TRUE(download.assign(now, kSelf, assignment(1, {{2, 0}})).has_value());
  download.handle_storage_ready(now);
  (void)actions();
  ASSERT_EQ(dialled.size(), 1u);
  const Instant began = now;
  const ConnId parent = dialled[0].conn;
  while (download.uses(parent)) {
    ASSERT_TRUE(download.poll_deadline());
    now = std::max(now, *download.poll_deadline());
    download.handle_timeout(now);
    if (!download.uses(parent)) break;
    const std::size_t before = dialled.size();
    EXPECT_TRUE(only<action::Send>(actions()).empty());
    if (dialled.size() == before) continue;
    ASSERT_EQ(dialled.size(), 2u);
    EXPECT_EQ(now - began, timeouts.dial_beside);
    EXPECT_TRUE(download.uses(parent)) << "it may answer yet";
    links.handle_connected(now, dialled[1].conn);
  }
  EXPECT_EQ(now - began, timeouts.dial);
  EXPECT_LE(timeouts.dial, 1300ms);
  const auto asked = only<action::Send>(actions());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].conn, dialled[1].conn) << "at once: it is there";
  EXPECT_EQ(dialled.size(), 2u);
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_NOT_AVAILABLE)) << "nobody complains of a slow link";
}

TEST_F(DownloadTest, PatienceWithADialFollowsWhatConnectionsTakeHere) {
  const auto connect = [&](std::uint32_t peer, Duration takes) {
    const ConnId conn = links.open(now, {PeerId{peer}, "", "host", static_cast<std::uint16_t>(1000 + peer)}, 0);
    now += takes;
    links.handle_connected(now, conn);
  };
  connect(9, 2s);
  connect(10, 2s);
  EXPECT_EQ(links.dial_patience(timeouts.dial), timeouts.dial) << "two may be of those that lie";
  connect(11, 2s);
  EXPECT_EQ(links.dial_patience(timeouts.dial), 4s);
  ASSERT_TRUE(download.assign(now, kSelf, assignment(1, {{2, 0}})).has_value());
  download.handle_storage_ready(now);
  (void)actions();
  const Instant began = now;
  std::vector<Duration> dials_after;
  while (download.uses(conn_to(2))) {
    now = std::max(now, *download.poll_deadline());
    const std::size_t before = dialled.size();
    download.handle_timeout(now);
    (void)actions();
    if (dialled.size() > before) dials_after.push_back(now - began);
  }
  EXPECT_EQ(now - began, 4s);
  EXPECT_THAT(dials_after, ElementsAre(3500ms)) << "the next ancestor is dialled beside it";
  for (std::uint32_t peer = 12; peer < 15; ++peer) connect(peer, 20ms);
  EXPECT_EQ(links.dial_patience(timeouts.dial), timeouts.dial);
  for (int i = 0; i < 9; ++i) connect(20, 60s);
  EXPECT_EQ(links.dial_patience(timeouts.dial), timeouts.dial) << "one peer, whatever it does";
  for (std::uint32_t peer = 21; peer < 24; ++peer) connect(peer, 60s);
  EXPECT_EQ(links.dial_patience(timeouts.dial), 8s) << "of an outage";
}

TEST_F(DownloadTest, NodeWhoseOwnTimersAreLateLeavesNobodyForAnswersThatAreLateToo) {
  const auto silence = [&](Duration late) {
    Download busy(timeouts, 1, holding, links, queue);
    EXPECT_TRUE(busy.assign(now, kSelf, assignment(1, {{2, 0}})).has_value());
    busy.handle_storage_ready(now);
    open_all();
    busy.handle_open(now, conn_to(2));
    const Instant asked = now;
    while (busy.uses(conn_to(2))) {
      now = std::max(now, *busy.poll_deadline() + late);
      busy.handle_timeout(now);
    }
    return now - asked;
  };
  EXPECT_EQ(silence(0ms), timeouts.parent_silence);
  const Duration of_late = silence(200ms), patience = timeouts.parent_silence + 4 * 200ms;
  EXPECT_GE(of_late, patience);
  EXPECT_LE(of_late, patience + 200ms);
}

TEST_F(DownloadTest, PatienceThatBecameShorterIsNoLatenessOfThisNode) {
  const auto connect = [&](std::uint32_t peer, Duration takes) {
    const ConnId conn = links.open(now, {PeerId{peer}, "", "host", static_cast<std::uint16_t>(1000 + peer)}, 0);
    now += takes;
    links.handle_connected(now, conn);
  };
  for (std::uint32_t peer = 9; peer < 12; ++peer) connect(peer, 2s);
  ASSERT_TRUE(download.assign(now, kSelf, assignment(1, {{2, 4, 0}})).has_value());
  download.handle_storage_ready(now);
  for (const Instant until = now + 3s; *download.poll_deadline() < until;) {
    now = std::max(now, *download.poll_deadline());
    download.handle_timeout(now);
  }
  for (std::uint32_t peer = 12; peer < 15; ++peer) connect(peer, 0s);
  ASSERT_TRUE(download.assign(now, kSelf, assignment(2, {{2, 4, 0}})).has_value());
  download.handle_timeout(now);
  open_all();
  const Instant asked = now;
  while (download.uses(conn_to(4))) {
    now = std::max(now, *download.poll_deadline());
    download.handle_timeout(now);
  }
  EXPECT_EQ(now - asked, timeouts.parent_silence);
}

TEST_F(DownloadTest, WhereAllDialsTakeLongTheFirstThatIsMadeIsUsedAndNoneIsGivenUp) {
  ASSERT_TRUE(download.assign(now, kSelf, assignment(1, {{2, 3, 0}})).has_value());
  download.handle_storage_ready(now);
  std::map<ConnId, Instant> made_at;
  const Instant began = now;
  bool asked = false;
  for (; now - began < 10s && !asked; now += 50ms) {
    for (const Action& action : actions()) {
      if (const auto* connect = std::get_if<action::Connect>(&action)) made_at[connect->conn] = now + 3s;
      EXPECT_FALSE(std::holds_alternative<action::Close>(action));
      asked = asked || std::holds_alternative<action::Send>(action);
    }
    for (auto made = made_at.begin(); made != made_at.end();) {
      const auto [conn, at] = *made++;
      if (at > now) continue;
      made_at.erase(conn);
      links.handle_connected(now, conn);
      download.handle_open(now, conn);
    }
    download.handle_timeout(now);
  }
  EXPECT_TRUE(asked);
  EXPECT_LT(now - began, 6s);
}

TEST_F(DownloadTest, ParentThatOnlyEverSaysThatItHasNothingIsLeftInTheEnd) {
  start(assignment(1, {{2, 0}}));
  const Instant asked = now;
  while (now - asked < 2 * timeouts.starvation && fault_kinds().empty()) {
    now += 200ms;
    download.handle_up_to_date(now, conn_to(2), 0);
    download.handle_timeout(now);
    if (download.uses(conn_to(2))) continue;
    break;
  }
  EXPECT_GE(now - asked, timeouts.starvation);
  EXPECT_LT(now - asked, timeouts.starvation + 500ms);
  open_all();
  EXPECT_TRUE(download.uses(conn_to(0)));
}

TEST_F(DownloadTest, ParentThatFeedsSlowlyButDoesIsNotTakenForAStarvingOne) {
  start(assignment(1, {{2, 0}}));
  ASSERT_TRUE(take_part(2, part_of(kVersion, kChunks)).has_value());
  for (std::uint32_t c = 0; c < 5; ++c) {
    for (Duration waited{}; waited < timeouts.starvation * 4 / 5; waited += 200ms) {
      now += 200ms;
      download.handle_up_to_date(now, conn_to(2), 0);
      download.handle_timeout(now);
    }
    EXPECT_TRUE(download.handle_chunk(now, conn_to(2), chunk_of(kVersion, ChunkIndex{c})));
  }
  EXPECT_THAT(fault_kinds(), ElementsAre());
}

TEST_F(DownloadTest, ChildThatGetsNothingSaysSoAndStaysWhetherOrNotItIsConnected) {
  ASSERT_TRUE(download.assign(now, kSelf, assignment(1, {{2, 0}})).has_value());
  (void)actions();
  now += 1s;
  download.handle_timeout(now);
  auto faults = take_faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, wire::FAULT_KIND_WAITING) << "it is still dialling";
  EXPECT_TRUE(faults[0].stays());
  EXPECT_EQ(faults[0].starving, 1000ms);
  open_all();
  for (const action::Connect& connect : dialled) {
    links.handle_connected(now, connect.conn);
    download.handle_open(now, connect.conn);
  }
  download.handle_storage_ready(now);
  download.handle_up_to_date(now, conn_to(2), 0);
  now += 500ms;
  download.handle_timeout(now);
  faults = take_faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, wire::FAULT_KIND_STARVED) << "the parent says that it has nothing more";
  EXPECT_EQ(faults[0].starving, 1500ms);
  EXPECT_TRUE(download.uses(conn_to(2)));
}

struct DownloadMoved : DownloadTest {
  void SetUp() override {
    DownloadTest::SetUp();
    start(assignment(1, {{2, 0}}));
    ASSERT_TRUE(download.assign(now, kSelf, assignment(2, {{3, 0}})).has_value());
    open_all();
  }
  /// Of what it has said since the last call.
  std::vector<ConnId> asked() {
    std::vector<ConnId> conns;
    for (const auto& send : only<action::Send>(actions())) {
      if (send.message.has_subscribe()) conns.push_back(send.conn);
    }
    return conns;
  }
};

TEST_F(DownloadMoved, AsksTheNewParentWhenTheOldOneHasNothingOnTheWay) {
  EXPECT_TRUE(asked().empty());
  download.handle_unsubscribed(now, conn_to(3), 0);
  EXPECT_TRUE(asked().empty()) << "that is not whom it waits for";
  download.handle_unsubscribed(now, conn_to(2), 0);
  EXPECT_THAT(asked(), ElementsAre(conn_to(3)));
}

TEST_F(DownloadMoved, AsksTheNewParentWhenTheOldOneCloses) {
  links.handle_closed(conn_to(2));
  download.handle_closed(now, conn_to(2));
  EXPECT_THAT(asked(), ElementsAre(conn_to(3)));
}

TEST_F(DownloadMoved, DoesNotWaitForTheOldParentForLong) {
  now += timeouts.draining;
  ASSERT_TRUE(download.poll_deadline());
  EXPECT_LE(*download.poll_deadline(), now);
  download.handle_timeout(now);
  EXPECT_THAT(asked(), ElementsAre(conn_to(3)));
}

TEST_F(DownloadTest, ParentIsToldOfTheChunkThatDoesNotMatch) {
  start(assignment(1, {{2, 0}}));
  ASSERT_TRUE(take_part(2, part_of(kVersion, kChunks)).has_value());
  (void)actions();
  EXPECT_FALSE(download.handle_chunk(now, conn_to(2), chunk_of(kVersion, ChunkIndex{9}, true)));
  const auto sent = only<action::Send>(actions());
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent[0].conn, conn_to(2));
  EXPECT_EQ(payload_of(sent[0].message.chunk_damaged()), PayloadId(kVersion));
  EXPECT_EQ(sent[0].message.chunk_damaged().chunk(), 9u);
}

TEST_F(DownloadTest, OriginIsToldOfTheChunkThatDoesNotMatch) {
  start(assignment(1, {{0}}));
  ASSERT_TRUE(take_part(0, part_of(kVersion, kChunks)).has_value());
  EXPECT_FALSE(download.handle_chunk(now, conn_to(0), chunk_of(kVersion, ChunkIndex{9}, true)));
  const auto faults = download.take_faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].parent, kOriginId);
  EXPECT_EQ(faults[0].damaged, ChunkIndex{9});
  EXPECT_EQ(parent_fault_from_wire(parent_fault_to_wire(faults[0])), faults[0]);
}

TEST_F(DownloadTest, OriginThatSendsDamageIsTriedSoOftenAndNoMore) {
  start(assignment(1, {{2, 0}}));
  ASSERT_TRUE(take_part(2, part_of(kVersion, kChunks)).has_value());
  int tries = 0;
  for (; !download.damaged_at_origin() && tries < 100; ++tries) {
    open_all();
    const std::uint32_t parent = download.uses(conn_to(2)) ? 2 : 0;
    EXPECT_FALSE(download.handle_chunk(now, conn_to(parent), chunk_of(kVersion, ChunkIndex{0}, true)));
    while (download.poll_deadline() && !download.uses(conn_to(0)) && !download.uses(conn_to(2))) {
      now = *download.poll_deadline();
      download.handle_timeout(now);
      open_all();
    }
  }
  EXPECT_LT(tries, 10);
}

}  // namespace
}  // namespace weightcast
