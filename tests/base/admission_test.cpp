#include "base/admission.h"

#include <gtest/gtest.h>

#include "tests/result_matchers.h"

namespace weightcast {
namespace {

constexpr AdmissionLimits kLimits{
    .connections_max = 8, .connections_per_host_max = 6, .unidentified_max = 4, .unidentified_per_host_max = 2};

struct AdmissionTest : testing::Test {
  Admission admission{kLimits};
  std::uint64_t last = 0;

  Status add(const std::string& host) { return admission.admit(ConnId{++last}, host); }
  void add_identified(const std::string& host) {
    ASSERT_TRUE(add(host).has_value());
    admission.identify(ConnId{last});
  }
};

TEST_F(AdmissionTest, IdentifiedConnectionsFillTheLimitAndNoMore) {
  for (int i = 0; i < 4; ++i) add_identified("a"), add_identified("b");
  EXPECT_THAT(add("c"), FailsWith(Errc::kBusy, "RLIMIT_NOFILE"));
  admission.erase(ConnId{1});
  EXPECT_TRUE(add("c").has_value());
}

TEST_F(AdmissionTest, OneHostLeavesRoomForOthers) {
  for (int i = 0; i < 6; ++i) add_identified("a");
  EXPECT_FALSE(add("a").has_value());
  EXPECT_TRUE(add("b").has_value());
}

TEST_F(AdmissionTest, OfSilentOnesOfAHostTheOldestGoes) {
  ASSERT_TRUE(add("b").has_value());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(add("a").has_value());
    EXPECT_FALSE(admission.crowded_out().has_value());
  }
  ASSERT_TRUE(add("a").has_value());
  EXPECT_EQ(admission.crowded_out(), ConnId{2});
  admission.erase(ConnId{2});
  EXPECT_FALSE(admission.crowded_out().has_value());
}

TEST_F(AdmissionTest, OfAllSilentOnesTheOldestGoes) {
  for (const char* host : {"a", "b", "c", "d"}) ASSERT_TRUE(add(host).has_value());
  EXPECT_FALSE(admission.crowded_out().has_value());
  ASSERT_TRUE(add("e").has_value());
  EXPECT_EQ(admission.crowded_out(), ConnId{1});
}

TEST_F(AdmissionTest, WhoIntroducesHimselfIsNotCrowdedOut) {
  add_identified("a");
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(add("a").has_value());
    if (const auto out = admission.crowded_out()) {
      EXPECT_NE(*out, ConnId{1});
      admission.erase(*out);
    }
  }
  EXPECT_EQ(admission.count(), 3u);
  EXPECT_FALSE(admission.is_unidentified(ConnId{1}));
}

TEST_F(AdmissionTest, ConnectionsThatAreNotCountedAreIgnored) {
  admission.identify(ConnId{7});
  admission.erase(ConnId{7});
  EXPECT_EQ(admission.count(), 0u);
  EXPECT_FALSE(admission.crowded_out().has_value());
}

TEST(AdmissionLimits, TakeHalfOfTheDescriptors) {
  const AdmissionLimits usual = AdmissionLimits::for_descriptors(1024);
  EXPECT_EQ(usual.connections_max, 512u);
  EXPECT_EQ(usual.connections_per_host_max, 384u);
  EXPECT_EQ(usual.unidentified_max, 128u);
  const AdmissionLimits large = AdmissionLimits::for_descriptors(UINT64_MAX);  // RLIM_INFINITY
  EXPECT_EQ(large.connections_max, 1u << 20);
  EXPECT_EQ(large.unidentified_max, 1024u);
  EXPECT_GE(AdmissionLimits::for_descriptors(0).unidentified_per_host_max, 2u);
}

}  // namespace
}  // namespace weightcast
