#include "bench/http/http_bench.h"

#include <gtest/gtest.h>

namespace weightcast::bench {
namespace {

TEST(HttpBench, MeasuresBesideClientsOfEachKind) {
  const auto result = run_http_bench({.idle = 40, .streams = 4, .never_read = 2, .event_ms = 2, .seconds = 1});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_GE(result->connections, 44u);
  // How many there are in its second is the host's.
  EXPECT_GE(result->probes, 2u);
  EXPECT_GT(result->events, 0u);
  EXPECT_GT(result->streams_cut, 0u);
  EXPECT_EQ(result->above_cap_status, 503u);
  EXPECT_GT(result->p50_ms, 0);
  EXPECT_LE(result->p50_ms, result->p99_ms);
  EXPECT_LE(result->p99_ms, result->max_ms);
}

}  // namespace
}  // namespace weightcast::bench
