#include "proto/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "proto/limits.h"

namespace weightcast {
namespace {

TEST(NodeName, TakesWhatClustersCallTheirNodes) {
  for (const std::string_view name :
       {"a", "7", "origin", "gpu-17.rack3.example.org", "vllm-0", "pool/vllm-0", "user@host:2", "node_1"})
    EXPECT_TRUE(check_node_name(name).has_value()) << name;
  EXPECT_TRUE(check_node_name(std::string(kNameBytesMax, 'x')).has_value());
}

TEST(NodeName, RefusesTheRestInOneLineOfPrintableText) {
  using namespace std::string_literals;
  for (const std::string& name : {""s, "-v"s, "--name"s, ".hidden"s, "/etc"s, "a b"s, "a\tb"s, "a\nerror forged"s,
                                  "\x1b[2J"s, "gpu-\xff"s, "a\0b"s, "Gerät"s, "a\"b"s, "a\\b"s, "a;b"s, "$HOME"s,
                                  std::string(kNameBytesMax + 1, 'x'), std::string(1 << 20, '\n')}) {
    const Status status = check_node_name(name);
    ASSERT_FALSE(status.has_value()) << name;
    EXPECT_EQ(status.error().code, Errc::kInvalidArgument);
    const std::string text = status.error().message();
    EXPECT_LT(text.size(), 512u);
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Host, TakesNamesAddressesAndNothing) {
  for (const std::string_view host : {"", "10.0.0.1", "::1", "fe80::1%eth0", "gpu-17.rack_3.example.org"})
    EXPECT_TRUE(check_host(host).has_value()) << host;
}

TEST(Host, RefusesWhatStatusCouldNotShow) {
  for (const std::string& host : {std::string("a b"), std::string("\xff"), std::string("\x1b[2J"), std::string("a\nb"),
                                  std::string(kNameBytesMax + 1, 'x')})
    EXPECT_FALSE(check_host(host).has_value()) << host;
}

TEST(Names, APatternStandsForTexts) {
  const auto matches = [](const char* pattern, const char* text) { return matches_pattern(pattern, text); };
  EXPECT_TRUE(matches("gpu-*", "gpu-07"));
  EXPECT_TRUE(matches("gpu-*", "gpu-"));
  EXPECT_FALSE(matches("gpu-*", "cpu-07"));
  EXPECT_TRUE(matches("*", "anything"));
  EXPECT_TRUE(matches("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(matches("a*b*c", "a-b-c-d"));
  EXPECT_TRUE(matches("w1", "w1"));
  EXPECT_FALSE(matches("w1", "w10"));
  EXPECT_FALSE(matches("w10", "w1"));
}

}  // namespace
}  // namespace weightcast
