#include <fmt/format.h>

#include "base/files/posix_file_system.h"
#include "tests/base/descriptor_limit.h"
#include "tests/transport/http/server_fixture.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kHello = "GET /hello HTTP/1.1\r\n\r\n";

TEST_F(ServerTest, RefusesConnectionsAboveTheCap) {
  start(HttpLimits{.connections_max = 3});
  std::deque<RawClient> busy;
  std::deque<Held> held;
  for (int i = 0; i < 3; ++i) {
    busy.push_back(ask("/wait"));
    held.push_back(take());
  }
  RawClient above = ask("/hello");
  const std::string refusal = above.hear_all();
  EXPECT_THAT(refusal, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refusal, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_EQ(server_->stats().refused_over_cap, 1u);

  held.front().responder.send({});
  EXPECT_TRUE(eventually([&] {
    RawClient next = dial();
    return next.say(kHello) && next.hear_until("\r\n").starts_with("HTTP/1.1 200");
  }));
}

TEST_F(ServerTest, WhoHasBeenAnsweredMakesWayForWhoComes) {
  start(HttpLimits{.connections_max = 8});  // 6 of one host
  RawClient busy = ask("/wait");
  const Held held = take();
  std::deque<RawClient> idle;
  for (int i = 0; i < 5; ++i) {
    idle.push_back(ask("/hello"));
    EXPECT_THAT(idle.back().hear_until("hello"), StartsWith("HTTP/1.1 200"));
  }
  for (int i = 0; i < 20; ++i) {
    RawClient next = ask("/hello");
    EXPECT_THAT(next.hear_until("hello"), StartsWith("HTTP/1.1 200")) << i;
  }
  EXPECT_TRUE(idle.front().ended());
  EXPECT_FALSE(held.responder.gone());
  EXPECT_EQ(server_->stats().refused_over_cap, 0u);
}

TEST_F(ServerTest, RefusesABodyThatIsCoded) {
  start();
  RawClient coded = saying("POST /echo HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx");
  const std::string refusal = coded.hear_until("}}");
  EXPECT_THAT(refusal, StartsWith("HTTP/1.1 415"));
  EXPECT_THAT(refusal, HasSubstr("Content-Encoding"));
  RawClient plain = saying("POST /echo HTTP/1.1\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\nxx");
  EXPECT_THAT(plain.hear_until("\r\n\r\nxx"), StartsWith("HTTP/1.1 200"));
}

TEST_F(ServerTest, StaysWithinItsCapUnderAFlood) {
  start(HttpLimits{.connections_max = 2});
  std::deque<RawClient> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(dial());
  EXPECT_TRUE(eventually([&] { return server_->stats().accepted == 300; }));
  EXPECT_LE(server_->stats().connections, 2u + 64u);
  // Nothing shows which of them is the honest one, but that it speaks soon.
  ASSERT_TRUE(flood.back().say(kHello));
  EXPECT_THAT(flood.back().hear_until("hello"), StartsWith("HTTP/1.1 200"));
}

TEST_F(ServerTest, SilentConnectionsMakeWayAndOthersDoNot) {
  start(HttpLimits{.connections_max = 16});  // 12 of one host, 2 of them silent
  RawClient first = ask("/hello");
  first.hear_until("hello");
  std::deque<RawClient> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(dial());
  EXPECT_TRUE(eventually([&] { return server_->stats().crowded_out == 198 && server_->stats().connections == 3; }));
  EXPECT_TRUE(flood.front().ended());
  RawClient next = ask("/hello");
  EXPECT_THAT(next.hear_until("hello"), StartsWith("HTTP/1.1 200"));
  ASSERT_TRUE(first.say(kHello));
  EXPECT_THAT(first.hear_until("hello"), StartsWith("HTTP/1.1 200"));
}

TEST_F(ServerTest, OneHostLeavesRoomForOthers) {
  start(HttpLimits{.connections_max = 8});
  std::deque<RawClient> busy;
  std::deque<Held> held;
  for (int i = 0; i < 6; ++i) {
    busy.push_back(ask("/wait"));
    held.push_back(take());
  }
  RawClient above = ask("/hello");
  EXPECT_THAT(above.hear_all(), StartsWith("HTTP/1.1 503"));
  RawClient other(port(), 0, INADDR_LOOPBACK + 1);
  ASSERT_TRUE(other.say(kHello));
  EXPECT_THAT(other.hear_until("hello"), StartsWith("HTTP/1.1 200"));
}

TEST_F(ServerTest, ConnectionsLeaveDescriptorsForFiles) {
  const DescriptorLimit few(256);
  start();  // 128 connections, of which 16 may be silent ones of one host
  std::deque<RawClient> flood;
  for (int i = 0; i < 150; ++i) flood.push_back(dial());
  EXPECT_TRUE(eventually([&] { return server_->stats().accepted == 150 && server_->stats().connections == 16; }));
  PosixFileSystem files;
  EXPECT_TRUE(read_file(files, "/proc/self/status", kMiB).has_value());
}

TEST_F(ServerTest, RefusesBadRequestsWithTheirReason) {
  start(HttpLimits{.header_bytes_max = 1000, .body_bytes_max = 100});
  for (const auto& [text, status] : {
           std::pair<std::string, int>{"nonsense\r\n\r\n", 400},
           {"GET / HTTP/3.0\r\n\r\n", 505},
           {"GET / HTTP/1.1\r\nX: " + std::string(2000, 'x') + "\r\n\r\n", 431},
           {"POST /echo HTTP/1.1\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'x'), 413},
           {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnot hex\r\n", 400},
       }) {
    RawClient client = dial();
    client.say(text);
    const std::string heard = client.hear_all();
    EXPECT_THAT(heard, StartsWith(fmt::format("HTTP/1.1 {} ", status))) << text;
    EXPECT_THAT(heard, HasSubstr("Connection: close\r\n"));
    EXPECT_TRUE(client.ended());
  }
  EXPECT_EQ(server_->stats().refused_requests, 5u);
  EXPECT_EQ(server_->stats().requests, 0u);
}

TEST_F(ServerTest, ARefusalReachesAClientThatStillSends) {
  start(HttpLimits{.body_bytes_max = 100});
  RawClient client = saying("POST /echo HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n");
  client.say(std::string(200'000, 'x'));
  EXPECT_THAT(client.hear_all(), StartsWith("HTTP/1.1 413"));
}

TEST_F(ServerTest, BoundsAllBodiesTogether) {
  start(HttpLimits{.body_bytes_max = 1000, .bodies_bytes_max = 1900});
  const std::string body(1000, 'x');
  const std::string post = "POST /later HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + body;
  RawClient first = saying(post);
  Held held = take();
  RawClient second = saying(post);
  EXPECT_THAT(second.hear_all(), StartsWith("HTTP/1.1 503"));
  held.responder.send({.body = "done"});
  EXPECT_THAT(first.hear_until("done"), StartsWith("HTTP/1.1 200"));
  // The first one's room is free again.
  RawClient third = saying(post);
  take().responder.send({.body = "done"});
  EXPECT_THAT(third.hear_until("done"), StartsWith("HTTP/1.1 200"));
}

TEST_F(ServerTest, ClosesClientsThatAreTooSlow) {
  start(HttpLimits{.idle_time_max = milliseconds(50)});
  RawClient silent = dial();
  EXPECT_EQ(silent.hear_all(), "");
  EXPECT_TRUE(silent.ended());
  // A busy host may be late between a connection and its first byte: that is not what these are about.
  start(HttpLimits{.header_time_max = milliseconds(50), .body_time_max = milliseconds(50)});
  RawClient half_header = saying("GET /hello HT");
  EXPECT_THAT(half_header.hear_all(), StartsWith("HTTP/1.1 408"));
  RawClient half_body = saying("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf");
  EXPECT_THAT(half_body.hear_all(), StartsWith("HTTP/1.1 408"));
}

TEST_F(ServerTest, ADripOfBytesBuysNoTime) {
  start(HttpLimits{.header_time_max = milliseconds(200)});
  RawClient client = dial();
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(client.say("GET /hello HTTP/1.1\r\nX: "));
  std::thread drips([&] {
    while (client.say("x") && server_->stats().timed_out == 0) std::this_thread::sleep_for(milliseconds(10));
  });
  EXPECT_TRUE(eventually([&] { return server_->stats().timed_out == 1; }));
  drips.join();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(200));
}

TEST_F(ServerTest, ClosesWhoDoesNotReadItsAnswer) {
  start(HttpLimits{.body_bytes_max = 64 * kMiB, .stall_time_max = milliseconds(100)});
  RawClient client = ask("/large", 4096);
  take().responder.send({.body = std::string(32 * kMiB, 'x')});
  EXPECT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
  EXPECT_EQ(server_->stats().timed_out, 1u);
}

TEST_F(ServerTest, CutsAStreamThatItsClientDoesNotRead) {
  start(HttpLimits{.stream_bytes_max = kMiB});
  RawClient client = ask("/stream", 4096);
  HttpStream stream = take().responder.stream({});
  const std::string chunk(64 * kKiB, 'x');
  std::uint64_t written = 0;
  // What the kernel's buffers take comes on top of the bound.
  while (written < 256 * kMiB && stream.write(chunk)) written += chunk.size();
  EXPECT_LT(written, 64 * kMiB);
  EXPECT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
}

// A generation writes on and on: what follows buys a client that reads nothing no time.
TEST_F(ServerTest, EndsAStreamThatIsWrittenAndNotReadWithinItsTime) {
  start(HttpLimits{
      .stream_bytes_max = 512 * kMiB, .streams_bytes_max = 1024 * kMiB, .stall_time_max = milliseconds(100)});
  RawClient client = ask("/stream", 4096);
  HttpStream stream = take().responder.stream({});
  const std::string chunk(4096, 'x');
  std::uint64_t written = 0;
  while (written < 100 * kMiB && stream.write(chunk)) {
    written += chunk.size();
    // The pace of a generation. Without the pause all bytes may be written before the time is over.
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_LT(written, 100 * kMiB);
  EXPECT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
  EXPECT_EQ(server_->stats().timed_out, 1u);
}

TEST_F(ServerTest, AnswersWithoutTheHandlerInTheEnd) {
  start(HttpLimits{.answer_time_max = milliseconds(50)});
  RawClient client = ask("/never");
  Held held = take();
  EXPECT_THAT(client.hear_all(), StartsWith("HTTP/1.1 504"));
  EXPECT_TRUE(held.responder.gone());
  held.responder.send({.body = "too late"});
}

TEST_F(ServerTest, ServesOthersBesideManyIdleConnections) {
  start();
  std::deque<RawClient> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(dial());
  const auto http = client();
  for (int i = 0; i < 20; ++i) {
    const auto response = http->call({.target = "/hello"}, kCallLimit);
    ASSERT_TRUE(response.has_value()) << response.error().message();
    EXPECT_EQ(response->body, "hello");
  }
}

}  // namespace
}  // namespace weightcast
