#include "tools/observe/operator_port.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/transport/http/raw_client.h"
#include "tests/transport/security/cluster_keys.h"
#include "transport/http/client.h"

namespace weightcast {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr Duration kCallLimit = std::chrono::minutes(1);
constexpr const char* kToken = "0123456789abcdef";

class OperatorPortTest : public testing::Test {
 protected:
  [[nodiscard]] std::string token_file(const std::string& text = std::string(kToken) + "\n", mode_t mode = 0600) {
    const std::string path = temp_.file("token");
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  void start(const OperatorPortOptions& options) {
    auto started = OperatorPort::start(options, [](const HttpRequest& request, HttpResponder responder) {
      responder.send({.content_type = "text/plain", .body = "you asked for " + request.path});
    });
    ASSERT_TRUE(started.has_value()) << started.error().message();
    port_ = std::move(*started);
  }
  std::string refused(const OperatorPortOptions& options) {
    const auto started = OperatorPort::start(options, [](HttpRequest, HttpResponder) {});
    return started.has_value() ? "" : started.error().message();
  }
  /// The answer to a GET with these lines of header.
  std::string get(const std::string& headers, const std::string& method = "GET") {
    RawClient client(port_->endpoint().port);
    EXPECT_TRUE(client.say(method + " /status HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n"));
    return client.hear_all();
  }

  TempDir temp_;
  std::unique_ptr<OperatorPort> port_;
};

TEST_F(OperatorPortTest, AnswersThisHostOnLoopback) {
  start({.listen = {"127.0.0.1", 0}});
  EXPECT_THAT(get("Host: 127.0.0.1:7401\r\n"), HasSubstr("you asked for /status"));
  EXPECT_THAT(get("Host: localhost\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(get("Host: [::1]:80\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(port_->url(), StartsWith("http://127.0.0.1:"));
}

// A page of elsewhere whose name's address became 127.0.0.1.
TEST_F(OperatorPortTest, RefusesNamesOfElsewhereOnLoopback) {
  start({.listen = {"127.0.0.1", 0}});
  EXPECT_THAT(get("Host: evil.example.net:7401\r\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(get("Host: localhost.example.net\r\n"), StartsWith("HTTP/1.1 403"));
}

TEST_F(OperatorPortTest, TakesGetAlone) {
  start({.listen = {"127.0.0.1", 0}});
  EXPECT_THAT(get("Host: localhost\r\nContent-Length: 0\r\n", "POST"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(get("Host: localhost\r\n", "HEAD"), testing::EndsWith("\r\n\r\n"));
}

TEST_F(OperatorPortTest, DoesNotListenOpenly) {
  const std::string why = refused({.listen = {"0.0.0.0", 0}});
  EXPECT_THAT(why, HasSubstr("--http 0.0.0.0:0"));
  EXPECT_THAT(why, HasSubstr("--http-token FILE"));
  EXPECT_THAT(why, HasSubstr("--keys"));
}

TEST_F(OperatorPortTest, WantsItsTokenWhereverItListens) {
  for (const char* host : {"127.0.0.1", "0.0.0.0"}) {
    start({.listen = {host, 0}, .token_file = token_file()});
    const std::string without = get("Host: gpu-1\r\n");
    EXPECT_THAT(without, StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(without, HasSubstr("WWW-Authenticate: Basic"));
    EXPECT_THAT(get("Authorization: Bearer 0123456789abcdee\r\n"), StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(get("Authorization: Bearer 0123456789abcde\r\n"), StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(get("Authorization: Bearer 0123456789abcdef\r\n"), StartsWith("HTTP/1.1 200"));
    // curl -u weightcast:0123456789abcdef
    EXPECT_THAT(get("Authorization: Basic d2VpZ2h0Y2FzdDowMTIzNDU2Nzg5YWJjZGVm\r\n"), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(get("Authorization: Basic d2VpZ2h0Y2FzdDowMTIzNDU2Nzg5YWJjZGVn\r\n"), StartsWith("HTTP/1.1 401"));
  }
}

TEST_F(OperatorPortTest, RefusesATokenThatIsShortOrThatOthersRead) {
  EXPECT_THAT(refused({.listen = {"127.0.0.1", 0}, .token_file = token_file("short\n")}),
              HasSubstr("16 characters at least"));
  EXPECT_THAT(refused({.listen = {"127.0.0.1", 0}, .token_file = token_file("0123456789abcdef\n", 0644)}),
              HasSubstr("chmod"));
  EXPECT_THAT(refused({.listen = {"127.0.0.1", 0}, .token_file = temp_.file("missing")}), HasSubstr("missing"));
}

TEST_F(OperatorPortTest, BeyondLoopbackKeysOfTheClusterMayAsk) {
  const ClusterKeys keys, others;
  start({.listen = {"0.0.0.0", 0}, .keys = keys.origin_file()});
  EXPECT_THAT(port_->url(), StartsWith("https://"));
  const auto ask = [&](const std::string& file) {
    auto client = HttpClient::make({.server = {"127.0.0.1", port_->endpoint().port}, .trust = {.keys = file}});
    EXPECT_TRUE(client.has_value());
    return (*client)->call({.target = "/status"}, kCallLimit);
  };
  const auto answered = ask(keys.issue("operator"));
  ASSERT_TRUE(answered.has_value()) << answered.error().message();
  EXPECT_EQ(answered->body, "you asked for /status");
  EXPECT_FALSE(ask(others.issue("operator")).has_value());
  EXPECT_THAT(get(""), testing::Not(HasSubstr("you asked")));
}

// The node has keys, and its operator looks at it from the same host.
TEST_F(OperatorPortTest, OnLoopbackANodeWithKeysIsPlain) {
  const ClusterKeys keys;
  start({.listen = {"127.0.0.1", 0}, .keys = keys.origin_file()});
  EXPECT_THAT(get("Host: localhost\r\n"), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace weightcast
