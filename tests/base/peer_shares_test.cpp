#include "base/peer_shares.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

TEST(PeerShares, OnePeerTakesNothingFromAnother) {
  PeerShares shares(10);
  EXPECT_TRUE(shares.take("a", 4));
  EXPECT_TRUE(shares.take("a", 6));
  EXPECT_FALSE(shares.take("a", 1));
  EXPECT_TRUE(shares.take("b", 10));
  EXPECT_FALSE(shares.take("c", 11));
  EXPECT_FALSE(shares.take("c", ~std::uint64_t{0})) << "sums do not wrap";
  shares.give_back("a", 3);
  EXPECT_FALSE(shares.take("a", 4));
  EXPECT_TRUE(shares.take("a", 3));
}

TEST(PeerShares, ForgetsWhoHasNothing) {
  PeerShares shares(10);
  EXPECT_TRUE(shares.take("a", 0));
  EXPECT_TRUE(shares.take("b", 4));
  EXPECT_EQ(shares.peers(), 1u);
  shares.give_back("b", 4);
  shares.give_back("a", 1);
  EXPECT_EQ(shares.peers(), 0u);
}

TEST(PeerShares, WhoHasNoNameHasNoShare) {
  PeerShares shares(1);
  EXPECT_TRUE(shares.take("", 100));
  EXPECT_EQ(shares.peers(), 0u);
}

}  // namespace
}  // namespace weightcast
