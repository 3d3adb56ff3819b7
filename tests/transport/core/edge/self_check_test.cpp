#include "transport/core/edge/self_check.h"

#include <gtest/gtest.h>

#include "proto/limits.h"
#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr Version kVersion{3};

struct SelfCheckTest : testing::Test {
  Holdings holdings;
  ActionQueue queue;
  SelfCheck check{holdings, queue};
  Instant now{1h};

  void SetUp() override {
    Holding& holding = holdings.emplace(kVersion, Holding(manifest_of(kVersion, 20))).first->second;
    holding.restore(chunk_digests(kVersion, 20), ChunkSet(20, true));
  }
  std::size_t asked() {
    return only<action::CheckChunk>(drain([&] { return queue.poll(); })).size();
  }
};

TEST_F(SelfCheckTest, ReadsWhatIsHeldAndNothingElse) {
  check.handle_suspected(now, Version{4}, ChunkIndex{0});
  check.handle_suspected(now, packed_of(kVersion), ChunkIndex{0});
  check.handle_suspected(now, kVersion, ChunkIndex{20});
  check.handle_suspected(now, kVersion, ChunkIndex{~0u});
  EXPECT_EQ(asked(), 0u);
  check.handle_suspected(now, kVersion, ChunkIndex{19});
  EXPECT_EQ(asked(), 1u);
}

TEST_F(SelfCheckTest, TellsDamageAndUnreadableBytesFromALie) {
  const ContentDigest right = chunk_digest(kVersion, ChunkIndex{1});
  ContentDigest wrong = right;
  wrong.bytes[0] ^= std::byte{1};
  check.handle_suspected(now, kVersion, ChunkIndex{1});
  EXPECT_FALSE(check.handle_checked(now, kVersion, ChunkIndex{1}, right));
  check.handle_suspected(now, kVersion, ChunkIndex{2});
  EXPECT_TRUE(check.handle_checked(now, kVersion, ChunkIndex{2}, wrong));
  check.handle_suspected(now, kVersion, ChunkIndex{3});
  EXPECT_TRUE(check.handle_checked(now, kVersion, ChunkIndex{3}, fail(Errc::kIo, Op::kRead, "the file is shorter")));
  EXPECT_FALSE(check.handle_checked(now, kVersion, ChunkIndex{4}, wrong)) << "nobody asked";
}

TEST_F(SelfCheckTest, ReadsNoMoreChunksThanItsBudgetWhoeverAsks) {
  constexpr std::uint32_t kMany = 1000;
  Holding& holding = holdings.emplace(Version{4}, Holding(manifest_of(Version{4}, kMany))).first->second;
  holding.restore(chunk_digests(Version{4}, kMany), ChunkSet(kMany, true));
  const auto ask_for_all = [&] {
    std::size_t read = 0;
    for (std::uint32_t chunk = 0; chunk < kMany; ++chunk) {
      check.handle_suspected(now, Version{4}, ChunkIndex{chunk});
      for (const auto& action : only<action::CheckChunk>(drain([&] { return queue.poll(); }))) {
        ++read;
        EXPECT_FALSE(check.handle_checked(now, Version{4}, action.chunk, chunk_digest(Version{4}, action.chunk)));
      }
    }
    return read;
  };
  EXPECT_EQ(ask_for_all(), kChunkChecksMax);
  EXPECT_EQ(ask_for_all(), 0u);
  now += SelfCheck::kRecheckAfter;
  EXPECT_EQ(ask_for_all(), kChunkChecksMax);
}

TEST_F(SelfCheckTest, AChildThatLiesCostsFewReads) {
  for (int i = 0; i < 100; ++i) {
    for (std::uint32_t chunk = 0; chunk < 20; ++chunk) check.handle_suspected(now, kVersion, ChunkIndex{chunk});
  }
  EXPECT_EQ(asked(), SelfCheck::kChecksMax);
  EXPECT_FALSE(check.handle_checked(now, kVersion, ChunkIndex{0}, chunk_digest(kVersion, ChunkIndex{0})));
  check.handle_suspected(now, kVersion, ChunkIndex{0});
  EXPECT_EQ(asked(), 0u) << "it has just been found right";
  now += SelfCheck::kRecheckAfter;
  check.handle_suspected(now, kVersion, ChunkIndex{0});
  EXPECT_EQ(asked(), 1u);
}

TEST_F(SelfCheckTest, WhatIsHeldNoMoreIsNotJudged) {
  check.handle_suspected(now, kVersion, ChunkIndex{1});
  holdings.clear();
  EXPECT_FALSE(check.handle_checked(now, kVersion, ChunkIndex{1}, fail(Errc::kNotFound, Op::kRead, "gone")));
}

}  // namespace
}  // namespace weightcast
