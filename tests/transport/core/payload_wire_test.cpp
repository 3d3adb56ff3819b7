#include "transport/core/manifest/payload_wire.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

TEST(PayloadOnTheWire, RoundTripsEveryKind) {
  for (const PayloadId payload :
       {PayloadId{Version{7}}, packed_of(Version{7}), patch_of(Version{7}, Version{6}), packed_of(kVersionMax)}) {
    wire::PayloadId message;
    payload_to_wire(payload, message);
    EXPECT_EQ(payload_from_wire(message), payload) << to_string(payload);
  }
}

TEST(PayloadOnTheWire, WhatCannotBeAPayloadNamesNothing) {
  struct Case {
    std::uint64_t version;
    int kind;
    std::uint64_t base;
  };
  for (const Case& bad :
       {Case{0, 1, 0}, Case{kVersionMax.value + 1, 1, 0}, Case{~std::uint64_t{0}, 2, 0}, Case{7, 0, 0}, Case{7, 4, 0},
        Case{7, 1, 6}, Case{7, 2, 6}, Case{7, 2, ~std::uint64_t{0}}, Case{7, 3, 0}, Case{7, 3, 7}, Case{7, 3, 8}}) {
    wire::PayloadId message;
    message.set_version(bad.version);
    message.set_kind(static_cast<wire::PayloadKind>(bad.kind));
    message.set_base_version(bad.base);
    EXPECT_EQ(payload_from_wire(message), PayloadId{}) << bad.version << " " << bad.kind << " " << bad.base;
  }
  EXPECT_EQ(payload_from_wire({}), PayloadId{});
}

}  // namespace
}  // namespace weightcast
