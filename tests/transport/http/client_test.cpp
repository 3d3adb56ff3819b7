#include "transport/http/client.h"

#include "tests/result_matchers.h"
#include "tests/transport/http/server_fixture.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;

/// A server that says what a test wants, on one thread of its own.
class RudeServer {
 public:
  explicit RudeServer(std::vector<std::string> answers) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    WC_CHECK(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(fd_.get(), 8) == 0);
    WC_CHECK(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answers = std::move(answers)] {
      // One connection per answer: reads a request's header, answers, closes.
      for (const std::string& answer : answers) {
        const UniqueFd peer(::accept(fd_.get(), nullptr, nullptr));
        std::string heard;
        char byte = 0;
        while (heard.find("\r\n\r\n") == std::string::npos && ::recv(peer.get(), &byte, 1, 0) == 1) heard += byte;
        if (heard.empty()) continue;
        WC_CHECK(::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL) == ssize_t(answer.size()));
      }
    });
  }
  ~RudeServer() {
    ::shutdown(fd_.get(), SHUT_RDWR);
    thread_.join();
  }
  [[nodiscard]] std::unique_ptr<HttpClient> client() const {
    return std::move(*HttpClient::make({.server = {"127.0.0.1", port_}, .trust = {}, .body_bytes_max = 1000}));
  }

 private:
  UniqueFd fd_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

struct ClientTest : ServerTest {
  void SetUp() override {
    start();
    http = client();
  }
  std::unique_ptr<HttpClient> http;
};

TEST_F(ClientTest, CarriesBodiesBothWaysOverOneConnection) {
  for (const std::size_t size : {0u, 1u, 100'000u, 8'000'000u}) {
    const std::string body(size, 'b');
    const auto response =
        http->call({.method = "POST", .target = "/echo", .content_type = "x/y", .body = body}, kCallLimit);
    ASSERT_TRUE(response.has_value()) << response.error().message();
    EXPECT_EQ(response->status, 200u);
    EXPECT_EQ(response->body, body);
  }
  EXPECT_EQ(server_->stats().accepted, 1u);
}

TEST_F(ClientTest, SendsWhatTheCallSays) {
  std::thread answers([this] {
    Held held = take();
    EXPECT_EQ(held.request.path, "/v1/x");
    EXPECT_EQ(held.request.query, "q=1");
    EXPECT_EQ(held.request.header("idempotency-key"), "k");
    EXPECT_FALSE(held.request.peer.has_value());
    held.responder.send({.status = 429, .body = "{}", .headers = {{"Retry-After", "3"}}});
  });
  const auto response = http->call({.target = "/v1/x?q=1", .headers = {{"Idempotency-Key", "k"}}}, kCallLimit);
  answers.join();
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->status, 429u);
  EXPECT_EQ(response->header("retry-after"), "3");
}

TEST_F(ClientTest, DialsAgainWhereTheServerHasClosedAnIdleConnection) {
  ASSERT_TRUE(http->call({.target = "/hello"}, kCallLimit).has_value());
  HttpServerOptions same_address;
  same_address.listen = server_->endpoint();
  server_.reset();
  start(std::move(same_address));
  ASSERT_THAT(http->call({.target = "/hello"}, kCallLimit), Succeeds());
}

TEST_F(ClientTest, EndsAtItsDeadline) {
  EXPECT_THAT(http->call({.target = "/never"}, milliseconds(50)), FailsWith(Errc::kTimedOut));
}

TEST_F(ClientTest, CanBeInterrupted) {
  std::thread interrupts([&] {
    const Held held = take();
    http->interrupt();
    ASSERT_TRUE(eventually([&] { return held.responder.gone(); }));
  });
  const auto response = http->call({.target = "/never"}, kCallLimit);
  interrupts.join();
  EXPECT_THAT(response, FailsWith(Errc::kCancelled));
  EXPECT_TRUE(http->call({.target = "/hello"}, kCallLimit).has_value());
}

TEST_F(ClientTest, SaysThatNobodyListens) {
  server_.reset();
  EXPECT_THAT(http->call({.target = "/hello"}, kCallLimit), FailsWith(Errc::kIo, "127.0.0.1:"));
}

TEST_F(ServerTest, AClientSeesARefusalBeforeItsBodyHasLeft) {
  start(HttpLimits{.body_bytes_max = 1000});
  const auto http = client();
  const auto response =
      http->call({.method = "POST", .target = "/echo", .body = std::string(4'000'000, 'x')}, kCallLimit);
  ASSERT_TRUE(response.has_value()) << response.error().message();
  EXPECT_EQ(response->status, 413u);
}

TEST(HttpClient, RefusesNonsenseAndAnswersThatAreTooLong) {
  const RudeServer server({"nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf", ""});
  const auto http = server.client();
  for (const Errc code : {Errc::kCorrupt, Errc::kTooLarge, Errc::kCorrupt, Errc::kClosed}) {
    EXPECT_THAT(http->call({}, kCallLimit), FailsWith(code));
  }
}

TEST(HttpClient, DoesNotLeaveLoopbackInPlainText) {
  EXPECT_THAT(HttpClient::make({.server = {"192.0.2.1", 80}, .trust = {}}), FailsWith(Errc::kNotAllowed));
}

}  // namespace
}  // namespace weightcast
