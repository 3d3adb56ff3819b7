#include "base/units.h"

#include <gtest/gtest.h>

#include "tests/result_matchers.h"

namespace weightcast {
namespace {

TEST(ParseRate, ReadsTheFormsThatTheCommandLineDocuments) {
  EXPECT_DOUBLE_EQ(parse_rate("300mbit")->bits_per_s(), 300e6);
  EXPECT_DOUBLE_EQ(parse_rate("1.5gbit")->bits_per_s(), 1.5e9);
  EXPECT_DOUBLE_EQ(parse_rate("12MiB/s")->bytes_per_s, 12.0 * double(kMiB));
  EXPECT_FALSE(parse_rate("unlimited")->limited());
}

TEST(ParseRate, RefusesWhatIsNotARateAndNamesIt) {
  for (const char* text :
       {"", "fast", "12", "12 mbit", "-1mbit", "0mbit", "nanmbit", "1e999mbit", "12MiB", "/s", "1/s"}) {
    const auto rate = parse_rate(text);
    EXPECT_THAT(rate, FailsWith(Errc::kInvalidArgument, "'" + std::string(text) + "'")) << text;
  }
}

TEST(ParseBytes, ReadsBinaryAndDecimalSizes) {
  EXPECT_EQ(*parse_bytes("64MiB"), 64 * kMiB);
  EXPECT_EQ(*parse_bytes("500kB"), 500000u);
  EXPECT_EQ(*parse_bytes("4096"), 4096u);
  EXPECT_EQ(*parse_bytes("0.5GiB"), kGiB / 2);
}

TEST(ParseBytes, RefusesWhatDoesNotFit) {
  EXPECT_EQ(parse_bytes("1e30").error().code, Errc::kTooLarge);
  EXPECT_EQ(parse_bytes("12mbit").error().code, Errc::kInvalidArgument);
}

TEST(Format, IsReadable) {
  EXPECT_EQ(format_rate(Rate::bits(300e6)), "300 Mbit/s");
  EXPECT_EQ(format_rate(Rate{}), "unlimited");
  EXPECT_EQ(format_bytes(64 * kMiB), "64.0 MiB");
  EXPECT_EQ(format_bytes(17), "17 B");
}

}  // namespace
}  // namespace weightcast
