#include "http/message.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weightcast {
namespace {

TEST(HttpMessage, FindsAHeaderInAnyCaseOfLetters) {
  const HttpRequest request{.headers = {{"Content-Type", "a"}, {"content-type", "b"}}};
  EXPECT_EQ(request.header("CONTENT-TYPE"), "a");
  EXPECT_EQ(request.header("Accept"), "");
}

TEST(HttpMessage, DecodesValuesOfTheQuery) {
  const HttpRequest request{.query = "mode=keep&empty=&text=a%20b+c%2f%zz%4&flag"};
  EXPECT_EQ(request.query_value("mode"), "keep");
  EXPECT_EQ(request.query_value("empty"), "");
  EXPECT_EQ(request.query_value("text"), "a b c/%zz%4");
  EXPECT_EQ(request.query_value("flag"), "");
  EXPECT_FALSE(request.query_value("other").has_value());
}

TEST(HttpMessage, SaysARefusalAsJson) {
  const HttpResponse refusal = http_error(429, "full: \xff");
  EXPECT_EQ(refusal.status, 429u);
  const auto json = nlohmann::json::parse(refusal.body);
  EXPECT_EQ(json["error"]["type"], "rate_limit_error");
  EXPECT_EQ(json["error"]["code"], 429);
}

}  // namespace
}  // namespace weightcast
