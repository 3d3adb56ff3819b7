#include "transport/http/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightcast {
namespace {

using testing::HasSubstr;

constexpr std::string_view kPost =
    "POST /v1/x?a=1&b=2 HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";

std::unique_ptr<HttpParser> request_parser() { return HttpParser::for_request({}); }

TEST(HttpParser, ReadsARequest) {
  const auto parser = request_parser();
  EXPECT_EQ(parser->put(kPost), kPost.size());
  ASSERT_TRUE(parser->done());
  EXPECT_TRUE(parser->keep_alive());
  const HttpRequest request = parser->take_request();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/x");
  EXPECT_EQ(request.query, "a=1&b=2");
  EXPECT_EQ(request.header("content-type"), "text/plain");
  EXPECT_EQ(request.body, "hello");
}

TEST(HttpParser, ReadsTheSameInPiecesOfAnySize) {
  const std::string chunked =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n";
  for (std::size_t piece = 1; piece < chunked.size(); ++piece) {
    const auto parser = request_parser();
    std::string waiting;
    for (std::size_t at = 0; at < chunked.size(); at += piece) {
      waiting += chunked.substr(at, piece);
      waiting.erase(0, parser->put(waiting));
    }
    ASSERT_TRUE(parser->done()) << piece;
    EXPECT_FALSE(parser->refusal()) << piece;
    EXPECT_EQ(parser->take_request().body, "abcde") << piece;
    EXPECT_EQ(waiting, "") << piece;
  }
}

TEST(HttpParser, LeavesWhatFollowsARequest) {
  const auto parser = request_parser();
  const std::string two = std::string(kPost) + std::string(kPost);
  EXPECT_EQ(parser->put(two), kPost.size());
  EXPECT_TRUE(parser->done());
}

TEST(HttpParser, RefusesWhatIsNoRequest) {
  for (const auto& [text, status] : {
           std::pair{"\x16\x03\x01\x02\r\n\r\n", 400u},
           std::pair{"GET / HTTP/2.0\r\n\r\n", 505u},
           std::pair{"GET /\r\n\r\n", 400u},
           std::pair{"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400u},
           std::pair{"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400u},
           std::pair{"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400u},
           std::pair{"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400u},
           std::pair{"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400u},
           std::pair{"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400u},
       }) {
    const auto parser = request_parser();
    static_cast<void>(parser->put(text));
    ASSERT_TRUE(parser->refusal()) << text;
    EXPECT_EQ(parser->refusal()->status, status) << text;
  }
}

TEST(HttpParser, BoundsHeaderAndBody) {
  const HttpParserLimits limits{.header_bytes_max = 100, .body_bytes_max = 10};
  auto parser = HttpParser::for_request(limits);
  static_cast<void>(parser->put("GET / HTTP/1.1\r\nA: " + std::string(200, 'x')));
  ASSERT_TRUE(parser->refusal());
  EXPECT_EQ(parser->refusal()->status, 431u);

  parser = HttpParser::for_request(limits);
  static_cast<void>(parser->put("POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n"));
  ASSERT_TRUE(parser->refusal());
  EXPECT_EQ(parser->refusal()->status, 413u);

  parser = HttpParser::for_request(limits);
  static_cast<void>(parser->put("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n"));
  ASSERT_TRUE(parser->refusal());
  EXPECT_EQ(parser->refusal()->status, 413u);
}

TEST(HttpParser, EndsAResponseWithoutLengthAtTheEndOfTheConnection) {
  const auto parser = HttpParser::for_response({}, false);
  static_cast<void>(parser->put("HTTP/1.1 200 OK\r\n\r\nall of it"));
  EXPECT_FALSE(parser->done());
  parser->put_end();
  ASSERT_TRUE(parser->done());
  EXPECT_FALSE(parser->keep_alive());
  EXPECT_EQ(parser->take_response().body, "all of it");
}

TEST(HttpParser, RefusesAResponseThatIsCutOff) {
  for (const std::string_view text : {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"}) {
    const auto parser = HttpParser::for_response({}, false);
    static_cast<void>(parser->put(text));
    parser->put_end();
    EXPECT_TRUE(parser->refusal()) << text;
  }
}

}  // namespace
}  // namespace weightcast
