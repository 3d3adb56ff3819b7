#include "tools/observe/otlp_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using Outcome = OtlpQueue::Outcome;

local::PublicationEntry entry(std::uint64_t version, const std::string& state = "complete") {
  local::PublicationEntry entry;
  entry.version = version;
  entry.published_unix_ms = static_cast<std::int64_t>(1000 + version);
  entry.state = state;
  return entry;
}

struct OtlpQueueTest : testing::Test {
  OtlpQueue queue{1002};  // what version 2 of entry() is published at
  Instant now{};
  std::vector<local::PublicationEntry> history;

  /// The origin remembers this one as well.
  void tell(const local::PublicationEntry& publication) {
    history.push_back(publication);
    queue.handle_history(now, history);
  }
  /// Whether `version` is the one to send, `after` from now on and not before.
  bool is_due(std::uint64_t version, Duration after) const {
    return queue.poll_version(now + after - 1ns) == std::nullopt && queue.poll_version(now + after) == version;
  }
};

TEST_F(OtlpQueueTest, SendsEachOnceWhenItHasEndedAndEnginesHaveHadTime) {
  tell(entry(1));  // ended before
  tell(entry(2, "under way"));
  EXPECT_EQ(queue.poll_version(now + 1h), std::nullopt);
  history.back().state = "superseded";
  tell(entry(3));
  EXPECT_TRUE(is_due(2, OtlpQueue::kSettle));
  now += OtlpQueue::kSettle;
  queue.handle_outcome(now, Outcome::kSent);
  EXPECT_EQ(queue.poll_version(now), 3u);
  queue.handle_outcome(now, Outcome::kSent);
  queue.handle_history(now, history);
  EXPECT_EQ(queue.poll_version(now + 1h), std::nullopt);
  EXPECT_EQ(queue.sent(), 2u);
  EXPECT_EQ(queue.dropped(), 0u);
}

TEST_F(OtlpQueueTest, SendsWhatHasBegunAndEndedBeforeTheFirstLook) {
  history = {entry(1)};
  tell(entry(2));
  EXPECT_TRUE(is_due(2, OtlpQueue::kSettle));
}

TEST_F(OtlpQueueTest, ANumberThatIsPublishedAgainIsAnotherPublication) {
  queue.handle_history(now, history);
  tell(entry(2, "given up"));
  queue.handle_outcome(now += OtlpQueue::kSettle, Outcome::kSent);
  history.back().state = "complete";
  history.back().published_unix_ms += 1;
  queue.handle_history(now, history);
  EXPECT_TRUE(is_due(2, OtlpQueue::kSettle));
}

TEST_F(OtlpQueueTest, TriesAgainMoreAndMoreSeldom) {
  queue.handle_history(now, history);
  tell(entry(1));
  now += OtlpQueue::kSettle;
  for (Duration pause = OtlpQueue::kRetryMin; pause < 4 * OtlpQueue::kRetryMax; pause *= 2) {
    queue.handle_outcome(now, Outcome::kRetry);
    const Duration waits = std::min(pause, OtlpQueue::kRetryMax);
    EXPECT_TRUE(is_due(1, waits)) << to_seconds(pause);
    now += waits;
  }
  queue.handle_outcome(now, Outcome::kSent);
  tell(entry(2));
  now += OtlpQueue::kSettle;
  queue.handle_outcome(now, Outcome::kRetry);
  EXPECT_TRUE(is_due(2, OtlpQueue::kRetryMin)) << "it has taken one meanwhile";
}

TEST_F(OtlpQueueTest, WhatIsRefusedIsDroppedAndTheNextOneComes) {
  queue.handle_history(now, history);
  tell(entry(1));
  tell(entry(2));
  now += OtlpQueue::kSettle;
  queue.handle_outcome(now, Outcome::kRefused);
  EXPECT_EQ(queue.dropped(), 1u);
  EXPECT_EQ(queue.poll_version(now), 2u);
}

TEST_F(OtlpQueueTest, KeepsABoundedNumberAndCountsTheOthers) {
  queue.handle_history(now, history);
  for (std::uint64_t version = 1; version <= OtlpQueue::kWaitingMax + 10; ++version) tell(entry(version));
  EXPECT_EQ(queue.dropped(), 10u);
  now += OtlpQueue::kSettle;
  for (std::uint64_t version = 11; version <= OtlpQueue::kWaitingMax + 10; ++version) {
    EXPECT_EQ(queue.poll_version(now), version);
    queue.handle_outcome(now, Outcome::kSent);
  }
  EXPECT_EQ(queue.poll_version(now + 1h), std::nullopt);
}

}  // namespace
}  // namespace weightcast
