#include "transport/http/message.h"

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

TEST(HttpMessage, DecodesTheTargetsPath) {
  struct {
    std::string target, path, query;
  } const rows[] = {
      {"/v1/models/org%2fname?a=%20b", "/v1/models/org/name", "a=%20b"},
      {"/a+b%20c%zz%4", "/a+b c%zz%4", ""},
      {"/nul%00and%0Aend%7f", "/nul%00and%0Aend%7f", ""},
      {"/%252e", "/%2e", ""},
      {"http://host:8000/v1/models?x=/", "/v1/models", "x=/"},
      {"HTTPS://host/health", "/health", ""},
      {"http://host", "/", ""},
      {"http://host?x=1", "/", "x=1"},
      {"*", "*", ""},
  };
  for (const auto& row : rows) {
    HttpRequest request;
    set_target(request, row.target);
    EXPECT_EQ(request.path, row.path) << row.target;
    EXPECT_EQ(request.query, row.query) << row.target;
  }
}

TEST(HttpMessage, SaysWhichMethodsAPathTakes) {
  const HttpResponse refusal = http_wrong_method("DELETE", "GET, HEAD");
  EXPECT_EQ(refusal.status, 405u);
  ASSERT_EQ(refusal.headers.size(), 1u);
  EXPECT_EQ(refusal.headers[0].name, "Allow");
  EXPECT_EQ(refusal.headers[0].value, "GET, HEAD, OPTIONS");
  const HttpResponse told = http_wrong_method("OPTIONS", "POST");
  EXPECT_EQ(told.status, 204u);
  EXPECT_EQ(told.headers.at(0).value, "POST, OPTIONS");
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
