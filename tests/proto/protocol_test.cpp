#include "proto/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <string>

namespace weightcast {
namespace {

using testing::HasSubstr;

ProtocolRange some_range() {
  const auto lowest = *rc::gen::inRange<std::uint32_t>(0, 8);
  return {lowest, *rc::gen::inRange<std::uint32_t>(lowest, 9)};
}

RC_GTEST_PROP(Protocol, AgreesOnTheHighestThatBothSpeakOrOnNone, ()) {
  const ProtocolRange a = some_range(), b = some_range();
  const Result<std::uint32_t> agreed = agree_protocol(a, b, "node"), back = agree_protocol(b, a, "node");
  RC_ASSERT(agreed.has_value() == back.has_value());
  if (agreed.has_value()) RC_ASSERT(*agreed == *back);
  for (std::uint32_t version = 0; version < 10; ++version) {
    if (!a.contains(version) || !b.contains(version)) continue;
    RC_ASSERT(agreed.has_value());
    RC_ASSERT(*agreed >= version);
  }
  if (agreed.has_value()) RC_ASSERT(a.contains(*agreed) && b.contains(*agreed));
}

TEST(Protocol, NeighbouringReleasesAgreeAndTheOnesBeyondAreToldWhoIsToBeUpgraded) {
  const ProtocolRange ours{7, 8};
  EXPECT_EQ(agree_protocol(ours, protocol_range(7, 0), "origin"), 7u) << "a release before ranges";
  EXPECT_EQ(agree_protocol(ours, protocol_range(8, 9), "origin"), 8u);
  const auto old = agree_protocol(ours, protocol_range(6, 0), "origin");
  ASSERT_FALSE(old.has_value());
  EXPECT_EQ(old.error().code, Errc::kUnsupported);
  EXPECT_EQ(old.error().detail,
            "it speaks protocol 6, this origin 7 to 8: its release is too old; upgrade it to the release between");
  const auto next = agree_protocol(ours, protocol_range(9, 10), "node");
  ASSERT_FALSE(next.has_value());
  EXPECT_EQ(next.error().detail,
            "it speaks protocol 9 to 10, this node 7 to 8: its release is too new; upgrade this node to the release "
            "between");
  EXPECT_FALSE(agree_protocol(ours, protocol_range(0, 0), "node").has_value());
}

TEST(Protocol, WhatIsSaidUpsideDownIsOneVersion) { EXPECT_EQ(protocol_range(8, 3), (ProtocolRange{8, 8})); }

// What a release has sent, later ones go on knowing. Only the last rows of this table may be new.
TEST(Protocol, EveryMessageHasTheVersionThatItCameWith) {
  const std::map<std::string, std::uint32_t> later = {{"skip", 8}, {"welcome", 8}};
  const auto* kinds = wire::Message::descriptor()->oneof_decl(0);
  for (int i = 0; i < kinds->field_count(); ++i) {
    const auto found = later.find(kinds->field(i)->name());
    const auto kind = static_cast<wire::Message::KindCase>(kinds->field(i)->number());
    EXPECT_EQ(first_protocol_of(kind), found == later.end() ? 7 : found->second) << kinds->field(i)->name();
    EXPECT_LE(first_protocol_of(kind), kProtocolVersion);
  }
}

}  // namespace
}  // namespace weightcast
