// A download by several connections to each parent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/edge/download_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

/// Chunks of even index come by the first stream, the others by the second.
struct DownloadByTwoStreams : DownloadTest {
  DownloadByTwoStreams() : DownloadTest(manifest_of(kVersion, kChunks), 2) {}

  /// Chunks come by the first stream alone, one each `pace`; `second_idle`: the parent says on the second that it has
  /// nothing more.
  void feed_first(int chunks, Duration pace, bool second_idle) {
    for (int i = 0; i < chunks; ++i) {
      now += pace;
      download.handle_timeout(now);
      open_all();
      ASSERT_TRUE(download.handle_chunk(now, dialled[0].conn, chunk_of(kVersion, ChunkIndex{next})));
      next += 2;
      if (second_idle) download.handle_up_to_date(now, dialled[1].conn, 1);
    }
  }
  void start_both(const std::vector<std::uint32_t>& ancestors) {
    start(assignment(1, {ancestors}));
    ASSERT_EQ(dialled.size(), 2u);
    ASSERT_TRUE(take_part(ancestors[0], part_of(kVersion, kChunks)).has_value());
  }
  std::uint32_t next = 0;
};

TEST_F(DownloadByTwoStreams, DoesNotSayThatItStarvesWhileOneOfThemIsFed) {
  start_both({2, 0});
  feed_first(15, 200ms, true);
  EXPECT_TRUE(take_faults().empty());
  for (int i = 0; i < 5; ++i) {
    now += 200ms;
    for (const std::uint32_t stream : {0u, 1u}) download.handle_up_to_date(now, dialled[stream].conn, stream);
    download.handle_timeout(now);
  }
  const auto faults = take_faults();
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults[0].kind, wire::FAULT_KIND_STARVED);
  EXPECT_EQ(faults[0].starving, 1000ms) << "since the last chunk of either";
}

TEST_F(DownloadByTwoStreams, StreamThatIsSilentWhileTheOtherIsFedIsDialledAnewAndNobodyIsBlamed) {
  start_both({0});
  feed_first(30, 50ms, false);
  ASSERT_EQ(dialled.size(), 3u);
  EXPECT_EQ(dialled[2].port, dialled[1].port);
  EXPECT_FALSE(download.uses(dialled[1].conn));
  EXPECT_TRUE(download.uses(dialled[2].conn));
  EXPECT_TRUE(take_faults().empty());
}

TEST_F(DownloadByTwoStreams, StreamThatIsMuchSlowerThanTheOtherIsGivenEverMoreTime) {
  start_both({0});
  feed_first(50, 100ms, false);
  EXPECT_EQ(dialled.size(), 4u) << "after 16 chunks of the other, and after 32 more";
}

TEST_F(DownloadByTwoStreams, StripesThatAreTooUnequalToBeSplitAreNot) {
  Assignment unequal = assignment(1, {{2, 0}, {3, 0}});
  unequal.stripe_weights = {1, 1000};
  start(unequal);
  EXPECT_EQ(dialled.size(), 2u) << "one stream for each stripe";
}

}  // namespace
}  // namespace weightcast
