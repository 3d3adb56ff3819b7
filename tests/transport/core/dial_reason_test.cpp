#include "transport/core/dial_reason.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

TEST(DialReason, LacksTheAddressAndTheAdvice) {
  EXPECT_EQ(dial_reason("to 10.0.0.4:700: Connection refused; is the daemon running there?", "10.0.0.4:700"),
            "Connection refused");
  EXPECT_EQ(dial_reason("to [::1]:700: timed out", "[::1]:700"), "timed out");
}

TEST(DialReason, KeepsAnErrorThatIsNotOfThisAddress) {
  EXPECT_EQ(dial_reason("to 10.0.0.4:7000: Connection refused", "10.0.0.4:700"),
            "to 10.0.0.4:7000: Connection refused");
  EXPECT_EQ(dial_reason("the peer ended the connection", "10.0.0.4:700"), "the peer ended the connection");
  EXPECT_EQ(dial_reason("", "10.0.0.4:700"), "");
}

}  // namespace
}  // namespace weightcast
