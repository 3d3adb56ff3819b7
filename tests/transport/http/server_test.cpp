#include <ctime>

#include "tests/transport/http/server_fixture.h"

namespace weightcast {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct RunningServer : ServerTest {
  void SetUp() override { start(); }
};

TEST_F(RunningServer, AnswersSeveralRequestsOnOneConnection) {
  RawClient client = dial();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.say("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n"));
    EXPECT_THAT(client.hear_until("hello"), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
  EXPECT_EQ(server_->stats().accepted, 1u);
  EXPECT_EQ(server_->stats().requests, 3u);
}

TEST_F(RunningServer, AnswersPipelinedRequestsInOrder) {
  RawClient client = dial();
  std::string all;
  for (int i = 0; i < 50; ++i) {
    const std::string body = "body " + std::to_string(i);
    all += "POST /echo HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  ASSERT_TRUE(client.say(all));
  for (int i = 0; i < 50; ++i) {
    const std::string body = "body " + std::to_string(i);
    EXPECT_THAT(client.hear_until("\r\n\r\n" + body), testing::EndsWith(body));
  }
}

TEST_F(RunningServer, AnswersFromAnotherThread) {
  RawClient client = ask("/later");
  std::thread([held = take()]() mutable { held.responder.send({.body = "at last"}); }).join();
  EXPECT_THAT(client.hear_until("at last"), StartsWith("HTTP/1.1 200"));
}

TEST_F(RunningServer, AnswersAClientThatHalfCloses) {
  RawClient client = ask("/later");
  Held held = take();
  client.end_writing();
  ASSERT_TRUE(eventually([&] { return held.responder.gone(); }));
  held.responder.send({.body = "still there?"});
  EXPECT_THAT(client.hear_all(), HasSubstr("still there?"));
  EXPECT_TRUE(client.ended());
}

TEST_F(RunningServer, SendsTheHeadAloneToAHead) {
  RawClient client = saying("HEAD /hello HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string heard = client.hear_all();
  EXPECT_THAT(heard, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(heard, testing::EndsWith("\r\n\r\n"));
}

TEST_F(RunningServer, ClosesAfterTheAnswerToHttp10) {
  RawClient client = saying("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.hear_all(), HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(client.ended());
}

TEST_F(RunningServer, TellsAClientThatWaitsToGoOn) {
  RawClient client = saying("POST /echo HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.hear_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.say("body"));
  EXPECT_THAT(client.hear_until("body"), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(RunningServer, StreamsInChunks) {
  RawClient client = ask("/stream");
  HttpStream stream = take().responder.stream({.content_type = "text/event-stream"});
  ASSERT_TRUE(stream.write("data: 1\n\n"));
  EXPECT_THAT(client.hear_until("data: 1\n\n\r\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
  ASSERT_TRUE(stream.write("data: 2\n\n"));
  EXPECT_EQ(client.hear_until("\n\n\r\n"), "9\r\ndata: 2\n\n\r\n");
  stream.end();
  EXPECT_EQ(client.hear_until("0\r\n\r\n"), "0\r\n\r\n");
  // The connection goes on.
  ASSERT_TRUE(client.say("GET /hello HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(client.hear_until("hello"), StartsWith("HTTP/1.1 200"));
}

TEST_F(RunningServer, AStreamWithoutNewsCostsNoTime) {
  RawClient client = ask("/stream");
  HttpStream stream = take().responder.stream({});
  ASSERT_TRUE(stream.write("data"));
  EXPECT_THAT(client.hear_until("data"), HasSubstr("data"));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 20) << "of processor time";
}

TEST_F(RunningServer, EndsAStreamWithItsHandle) {
  const auto http = client();
  std::thread answers([this] {
    HttpStream stream = take().responder.stream({.content_type = "text/plain"});
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(stream.write("line\n"));
  });
  const auto response = http->call({.target = "/stream"}, kCallLimit);
  answers.join();
  ASSERT_TRUE(response.has_value()) << response.error().message();
  EXPECT_EQ(response->body.size(), 5000u);
}

TEST_F(RunningServer, TellsAHandlerWhoseClientHasGone) {
  RawClient client = ask("/later");
  Held held = take();
  std::atomic<int> calls = 0;
  held.responder.on_gone([&] { ++calls; });
  client.close();
  EXPECT_TRUE(eventually([&] { return calls == 1; }));
  EXPECT_TRUE(held.responder.gone());
  held.responder.send({.body = "nobody there"});
  EXPECT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
  EXPECT_EQ(calls, 1);
}

TEST_F(RunningServer, TellsAStreamWhoseClientHasGone) {
  RawClient client = ask("/stream");
  HttpStream stream = take().responder.stream({});
  client.close();
  EXPECT_TRUE(eventually([&] { return !stream.write("data"); }));
}

TEST_F(RunningServer, AnswersForAHandlerThatDoesNot) {
  RawClient client = ask("/forgotten");
  { const Held held = take(); }
  EXPECT_THAT(client.hear_until("\r\n\r\n"), StartsWith("HTTP/1.1 500"));
}

TEST_F(RunningServer, KeepsLineEndsOutOfHeaders) {
  RawClient client = ask("/header");
  take().responder.send({.headers = {{"X-Echo", "a\r\nSet-Cookie: b"}}});
  EXPECT_THAT(client.hear_until("\r\n\r\n"), HasSubstr("X-Echo: a  Set-Cookie: b\r\n"));
}

TEST_F(RunningServer, StopLetsRequestsEnd) {
  RawClient idle = dial(), busy = ask("/later");
  Held held = take();
  std::thread stops([this] { server_->stop(kCallLimit); });
  EXPECT_TRUE(idle.ended());
  held.responder.send({.body = "the last word"});
  EXPECT_THAT(busy.hear_all(), HasSubstr("the last word"));
  stops.join();
}

TEST_F(RunningServer, StopEndsStreamsThatGoOn) {
  RawClient client = ask("/stream");
  HttpStream stream = take().responder.stream({});
  ASSERT_TRUE(stream.write("data"));
  EXPECT_THAT(client.hear_until("data"), HasSubstr("data"));
  server_->stop(std::chrono::milliseconds(50));
  EXPECT_FALSE(stream.write("more"));
  EXPECT_TRUE(client.ended());
}

TEST_F(RunningServer, RespondersOutliveTheServer) {
  RawClient client = ask("/a");
  Held held = take();
  server_.reset();
  EXPECT_TRUE(held.responder.gone());
  bool called = false;
  held.responder.on_gone([&] { called = true; });
  EXPECT_TRUE(called);
  held.responder.send({.body = "too late"});
}

TEST_F(ServerTest, AnswersWhoCameBeforeItServed) {
  auto listening = HttpServer::listen({});
  ASSERT_TRUE(listening.has_value());
  server_ = std::move(*listening);
  RawClient client = ask("/stats");
  // The handler may use the server: it is in its place before the first request.
  server_->serve([this](HttpRequest, HttpResponder responder) {
    responder.send({.body = std::to_string(server_->stats().accepted) + " accepted"});
  });
  EXPECT_THAT(client.hear_until("accepted"), HasSubstr("1 accepted"));
}

TEST_F(ServerTest, StopsWithoutHavingServed) {
  auto listening = HttpServer::listen({});
  ASSERT_TRUE(listening.has_value());
  RawClient client((*listening)->endpoint().port);
  listening->reset();
  EXPECT_TRUE(client.ended());
}

TEST_F(RunningServer, SaysThatItsAddressIsTaken) {
  HttpServerOptions options;
  options.listen = server_->endpoint();
  const auto second = HttpServer::start(options, [](HttpRequest, HttpResponder) {});
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message(), HasSubstr(server_->endpoint().to_string()));
}

}  // namespace
}  // namespace weightcast
