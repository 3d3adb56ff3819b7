#include "transport/node/history_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "proto/limits.h"
#include "transport/core/origin/members/membership.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct HistoryReplyTest : testing::Test {
  Member& member(const std::string& name) { return members.by_name(name); }
  void publish(std::uint64_t version) {
    Manifest manifest;
    manifest.version = Version{version};
    manifest.payload_bytes = 1000;
    history.handle_published(start, start, manifest);
  }
  local::HistoryReply reply(std::uint64_t version) {
    auto made = history_reply(history, Version{version}, "trainer", start + 9s);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return made.has_value() ? *std::move(made) : local::HistoryReply();
  }

  const Instant start{1h};
  Membership members;
  PublicationHistory history;
};

TEST_F(HistoryReplyTest, HasWhatEarlierProcessesPublished) {
  publish(6), publish(7);
  EarlierPublications earlier;
  const auto add = [&](std::uint64_t version) {
    const local::HistoryReply reply{.publications = {{.version = version, .why = "earlier"}},
                                    .workers = {{.name = "a"}}};
    earlier[Version{version}] = {reply.publications[0], local::encode_history(reply)};
  };
  add(4), add(6);
  const auto all = history_reply(history, kNoVersion, "trainer", start, earlier);
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->publications.size(), 3u);
  EXPECT_EQ(all->publications[0].version, 4u);
  EXPECT_EQ(all->publications[0].why, "earlier");
  EXPECT_EQ(all->publications[1].version, 6u);
  EXPECT_EQ(all->publications[1].why, "") << "this process knows it better";
  EXPECT_EQ(history_reply(history, Version{4}, "trainer", start, earlier)->workers[0].name, "a");
  const auto missing = history_reply(history, Version{5}, "trainer", start, earlier);
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("remembers versions 4 to 7"));
  for (std::uint64_t version = 1000; version < 2300; ++version) add(version);
  const auto bounded = history_reply(history, kNoVersion, "trainer", start, earlier);
  EXPECT_EQ(bounded->publications.size(), PublicationHistory::kVersionsMax);
  EXPECT_EQ(bounded->publications.back().version, 2299u);
}

TEST_F(HistoryReplyTest, HasAllPublicationsWithoutWorkersOrOneWithThem) {
  publish(1), publish(2);
  history.handle_told(start + 1s, member("a"), Version{2});
  history.handle_told(start + 2s, member("b"), Version{2});
  history.handle_told(start + 3s, member("c"), Version{2});
  InstallPhases phases;
  phases.receiving = 3s;
  phases.bytes = phases.fed_bytes = 1000;
  history.handle_installed(start + 5s, member("a"), kNoVersion, Version{2}, phases);
  phases.fed_by = member("a").id;
  history.handle_installed(start + 7s, member("b"), kNoVersion, Version{2}, phases);
  history.handle_taken(member("b"), Version{2}, 1500ms);
  EXPECT_EQ(reply(0).publications.size(), 2u);
  EXPECT_EQ(reply(0).workers.size(), 0u);
  const local::HistoryReply two = reply(2);
  ASSERT_EQ(two.publications.size(), 1u);
  EXPECT_EQ(two.publications[0].version, 2u);
  EXPECT_EQ(two.publications[0].state, "under way");
  EXPECT_EQ(two.publications[0].elapsed_s, 9);
  EXPECT_FALSE(two.publications[0].t100_s.has_value());
  ASSERT_EQ(two.workers.size(), 3u);
  EXPECT_EQ(two.workers[0].name, "c") << "it has not got it yet";
  EXPECT_FALSE(two.workers[0].installed_s.has_value());
  EXPECT_EQ(two.workers[0].told_s, 3);
  EXPECT_EQ(two.workers[1].name, "b") << "the slowest";
  EXPECT_EQ(two.workers[1].fed_by, "a");
  EXPECT_EQ(two.workers[1].installed_s, 7);
  EXPECT_EQ(two.workers[1].engine_s, 1.5);
  EXPECT_FALSE(two.workers[2].engine_s.has_value());
  EXPECT_EQ(two.workers[2].fed_by, "trainer");
  EXPECT_EQ(two.workers[2].receiving_s, 3);
}

TEST_F(HistoryReplyTest, SaysWhatIsRemembered) {
  EXPECT_THAT(history_reply(history, Version{3}, "trainer", start).error().message(),
              HasSubstr("version 3: this origin has published nothing that it remembers"));
  publish(4), publish(5);
  const auto none = history_reply(history, Version{3}, "trainer", start);
  EXPECT_EQ(none.error().code, Errc::kNotFound);
  EXPECT_THAT(none.error().message(), HasSubstr("version 3: this origin remembers versions 4 to 5"));
}

TEST_F(HistoryReplyTest, OfALargeFleetFitsAMessage) {
  publish(1);
  // Of each worker as much as can be said of one.
  InstallPhases largest;
  largest.waiting = largest.asking = largest.receiving = largest.storing = largest.applying = largest.switching =
      largest.given_up = largest.disk_behind = largest.interrupted = from_seconds(kPhaseMax_s);
  largest.parents_left = std::numeric_limits<std::uint32_t>::max();
  largest.bytes = largest.fed_bytes = kPayloadBytesMax;
  largest.fed_by = member("0" + std::string(kNameBytesMax - 6, 'n')).id;
  for (std::size_t i = 0; i < 2 * kHistoryWorkersMax; ++i) {
    Member& one = member(std::to_string(i) + std::string(kNameBytesMax - 6, 'n'));
    history.handle_told(start, one, patch_of(Version{1}, kVersionMax));
    history.handle_failed(one, Version{1}, std::string(kReasonBytesMax, 'x'));
    history.handle_joined(start + 1s, one);
    history.handle_installed(start + 2s, one, kNoVersion, Version{1}, largest);
  }
  const local::HistoryReply large = reply(1);
  ASSERT_EQ(large.workers.size(), kHistoryWorkersMax);
  EXPECT_TRUE(large.workers[0].has_phases);
  EXPECT_FALSE(large.workers[0].fed_by.empty());
  EXPECT_EQ(large.workers_total, 2 * kHistoryWorkersMax);
  EXPECT_LT(local::encode_history(large).size(), kControlBytesMax);
}

}  // namespace
}  // namespace weightcast
