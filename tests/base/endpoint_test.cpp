#include "base/settings/endpoint.h"

#include <gtest/gtest.h>

#include "tests/result_matchers.h"

namespace weightcast {
namespace {

TEST(Endpoint, ReadsNamesAndBothKindsOfAddress) {
  for (const auto& [text, host, port] :
       {std::tuple{"10.0.0.1:7000", "10.0.0.1", 7000}, std::tuple{"trainer.example.org:0", "trainer.example.org", 0},
        std::tuple{"[::1]:65535", "::1", 65535}}) {
    const auto endpoint = Endpoint::parse(text);
    ASSERT_TRUE(endpoint.has_value()) << text;
    EXPECT_EQ(endpoint->host, host);
    EXPECT_EQ(endpoint->port, port);
    EXPECT_EQ(endpoint->to_string(), text);
  }
}

TEST(Endpoint, RefusesEverythingElse) {
  for (const char* text : {"", ":", "host", "host:", ":7000", "host:port", "host:-1", "host:65536", "host:70 00",
                           "::1:7000", "[::1]", "[::1:7000", "[]:7000"}) {
    EXPECT_THAT(Endpoint::parse(text), FailsWith(Errc::kInvalidArgument)) << text;
  }
}

TEST(Endpoint, KnowsLoopbackFromNamesThatLookLikeIt) {
  for (const char* host : {"127.0.0.1", "127.8.9.1", "::1", "localhost"})
    EXPECT_TRUE((Endpoint{host, 1}.is_loopback())) << host;
  for (const char* host : {"127.example.org", "10.0.0.1", "0.0.0.0", "::", "localhost.example.org", "1270.0.0.1"}) {
    EXPECT_FALSE((Endpoint{host, 1}.is_loopback())) << host;
  }
}

}  // namespace
}  // namespace weightcast
