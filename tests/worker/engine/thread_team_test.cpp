#include "worker/engine/thread_team.h"

#include <gtest/gtest.h>

#include <numeric>

namespace weightcast {
namespace {

TEST(ThreadTeam, CallsEachIndexOnceInEachRound) {
  for (const unsigned threads : {1U, 2U, 4U}) {
    ThreadTeam team(threads);
    EXPECT_EQ(team.threads(), threads);
    std::vector<int> calls(100);
    for (std::size_t round = 0; round < 50; ++round) {
      const std::size_t count = round * 2;
      std::fill(calls.begin(), calls.end(), 0);
      team.run(count, [&](std::size_t i) { ++calls[i]; });
      for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i], i < count ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace weightcast
