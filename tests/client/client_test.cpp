#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "client/attempt.h"
#include "client/local_channel.h"
#include "tests/client/code_of.h"
#include "tests/client/scripted_daemon.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

struct ClientTest : testing::Test {
  ScriptedDaemon daemon;
  wc::Client client{daemon.state_dir()};

  static local::StatusReply last_page() {
    local::StatusReply page;
    page.last = true;
    return page;
  }
};

TEST(Client, WithoutADaemonSaysSo) {
  const auto client = attempt([] { return wc::Client("/nowhere"); });
  ASSERT_THAT(client, FailsWith(Errc::kNotFound));
  EXPECT_EQ(client.error().op, Op::kConnect);
  EXPECT_THAT(client.error().message(), HasSubstr("cannot connect: /nowhere/api.sock: no daemon runs there"));
}

TEST(Client, RefusesAStateDirectoryThatNoSocketCanHave) {
  EXPECT_EQ(code_of([] { return wc::Client(std::string(200, 'x')); }), WC_INVALID_ARGUMENT);
}

TEST_F(ClientTest, LateAnswerIsNotTakenForTheNextCalls) {
  EXPECT_EQ(code_of([&] { return client.status(30ms); }), WC_TIMED_OUT);
  daemon.play([this] {
    const auto status = daemon.receive();
    const auto versions = daemon.receive();
    ASSERT_TRUE(status && versions);
    daemon.send(last_page(), status->request_id);
    daemon.send(error_reply(Errc::kBusy, "the first call's"), status->request_id);
    const local::VersionsReply wanted{{local::VersionEntry{.version = 7}}};
    daemon.send(wanted, versions->request_id);
  });
  const auto versions = nlohmann::json::parse(client.versions()).at("versions");
  ASSERT_EQ(versions.size(), 1u);
  EXPECT_EQ(versions[0].at("version"), 7);
}

TEST_F(ClientTest, TellsOfOnePublicationWithItsWorkers) {
  daemon.play([this] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request && request->get<local::HistoryRequest>());
    EXPECT_EQ(as<local::HistoryRequest>(*request).version, 7u);
    local::HistoryReply reply;
    reply.publications.push_back({.version = 7, .t100_s = 4.5});
    reply.workers.push_back({.name = "a", .installed_s = 4.5, .has_phases = true, .receiving_s = 3.5});
    reply.workers.push_back({.name = "b"});
    reply.workers_total = 2;
    daemon.send(reply, request->request_id);
  });
  const auto told = nlohmann::json::parse(client.history(7));
  EXPECT_EQ(told.at("publications")[0].at("t100_s"), 4.5);
  EXPECT_TRUE(told.at("publications")[0].at("t50_s").is_null());
  EXPECT_EQ(told.at("workers")[0].at("phases").at("receiving_s"), 3.5);
  EXPECT_TRUE(told.at("workers")[1].at("phases").is_null());
  EXPECT_TRUE(told.at("workers")[1].at("installed_s").is_null());
  EXPECT_EQ(told.at("workers_total"), 2);
}

TEST_F(ClientTest, AnswersDoNotMoveACallsDeadline) {
  struct Progress {
    std::atomic<bool> call_ended = false, answers_ended = false;
  };
  const auto progress = std::make_shared<Progress>();
  daemon.play([this, progress] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request);
    local::StatusReply page;
    page.latest_version = 1;
    for (int i = 0; i < 1000 && !progress->call_ended; ++i) {
      daemon.send(page, request->request_id);
      std::this_thread::sleep_for(20ms);
    }
    progress->answers_ended = true;
  });
  EXPECT_EQ(code_of([&] { return client.status(100ms); }), WC_TIMED_OUT);
  EXPECT_FALSE(progress->answers_ended) << "20 s of answers were all heard";
  progress->call_ended = true;
}

TEST_F(ClientTest, StatusIsPutTogetherFromItsParts) {
  daemon.play([this] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request);
    for (int i = 0; i < 3; ++i) {
      local::StatusReply part;
      part.latest_version = 9;
      local::NodeStatus& node = part.nodes.emplace_back();
      node.name = "n" + std::to_string(i);
      if (i > 0) node.parent = "n" + std::to_string(i - 1);
      part.last = i == 2;
      daemon.send(part, request->request_id);
    }
  });
  const auto status = nlohmann::json::parse(client.status());
  EXPECT_EQ(status.at("latest_version"), 9);
  const auto nodes = status.at("nodes");
  ASSERT_EQ(nodes.size(), 3u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(nodes[i].at("children"), nlohmann::json::array({"n" + std::to_string(i + 1)})) << i;
  }
  EXPECT_TRUE(nodes[2].at("children").empty());
}

TEST_F(ClientTest, AnErrorOfTheDaemonComesAsItIs) {
  daemon.answer(error_reply(Errc::kAlreadyExists, "version 3: not greater"));
  const auto refused = attempt([&] { return client.publish_path("/weights", {.version = 3}, 5s); });
  ASSERT_THAT(refused, FailsWith(Errc::kAlreadyExists));
  EXPECT_EQ(refused.error().detail, "version 3: not greater");
}

// A daemon of a later release may know more codes than this library.
TEST_F(ClientTest, AnUnknownCodeIsAnError) {
  daemon.answer(error_reply(static_cast<Errc>(1'000'000'000), "something new"));
  EXPECT_EQ(code_of([&] { return client.status(); }), WC_IO);
}

TEST_F(ClientTest, ARequestAboveTheLimitIsAnErrorAndTheNextOneWorks) {
  EXPECT_EQ(code_of([&] { return client.publish_path(std::string(5 << 20, 'x'), {}, 5s); }), WC_TOO_LARGE);
  daemon.play([this] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request);
    EXPECT_EQ(as<local::PublishRequest>(*request).path, "/weights");
    daemon.send(accepted_reply(1), request->request_id);
  });
  EXPECT_EQ(client.publish_path("/weights", {}, 5s), 1u);
}

// Half a request cannot be followed by another one: the next call takes a new connection.
TEST_F(ClientTest, ARequestThatWasSentInPartEndsTheConnection) {
  const std::string path(3 << 20, 'x');  // more than a socket holds, and nobody reads
  EXPECT_EQ(code_of([&] { return client.publish_path(path, {}, 50ms); }), WC_TIMED_OUT);
  ASSERT_TRUE(daemon.accept());
  daemon.end();
  daemon.play([this] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request);
    EXPECT_TRUE(request->get<local::StatusRequest>());
    daemon.send(last_page(), request->request_id);
  });
  EXPECT_EQ(code_of([&] { return client.status(); }), WC_OK);
}

TEST_F(ClientTest, ConnectsAgainAfterTheDaemonsEnd) {
  ASSERT_TRUE(daemon.accept());
  daemon.end();
  daemon.answer(last_page());
  EXPECT_EQ(code_of([&] { return client.status(); }), WC_OK);
}

TEST_F(ClientTest, ADaemonThatEndsDuringACallIsTold) {
  daemon.play([this] {
    ASSERT_TRUE(daemon.receive());
    daemon.end();
  });
  EXPECT_EQ(code_of([&] { return client.status(); }), WC_CLOSED);
}

TEST_F(ClientTest, AnyTimeOutIsTaken) {
  daemon.answer(local::VersionsReply());
  EXPECT_EQ(code_of([&] { return client.versions(wc::Milliseconds::max()); }), WC_OK);
  EXPECT_EQ(code_of([&] { return client.versions(wc::Milliseconds::min()); }), WC_TIMED_OUT);
}

TEST_F(ClientTest, CancelEndsTheCallThatRunsAndNoOther) {
  client.cancel();  // nothing runs: it is not meant for the next one
  std::thread other([this] {
    ASSERT_TRUE(daemon.receive());
    client.cancel();
  });
  const auto start = Clock::now();
  EXPECT_EQ(code_of([&] { return client.status(20s); }), WC_CANCELLED);
  EXPECT_LT(Clock::now() - start, 10s);
  other.join();
  EXPECT_EQ(code_of([&] { return client.status(10ms); }), WC_TIMED_OUT);
}

TEST(Cancellation, ARequestCountsFromTheVeryBeginningOfACallAndForNoOtherCall) {
  client::Cancellation call;
  const auto wait = [&](std::chrono::milliseconds limit) {
    return client::wait_for(-1, 0, client::Clock::now() + limit, call, Op::kReceive).error().code;
  };
  call.request();
  ASSERT_TRUE(call.begin());
  EXPECT_FALSE(call.begin()) << "another call runs";
  EXPECT_EQ(wait(1ms), Errc::kTimedOut) << "what came before it is not meant for it";
  call.request();  // before it waits for anything
  EXPECT_EQ(wait(10s), Errc::kCancelled);
  EXPECT_EQ(wait(10s), Errc::kCancelled) << "whatever else it would wait for";
  call.end();
  ASSERT_TRUE(call.begin());
  EXPECT_EQ(wait(1ms), Errc::kTimedOut) << "the call before was meant, though it has read nothing of that";
  call.request();
  EXPECT_EQ(wait(10s), Errc::kCancelled);
  call.end();
}

// The other thread learns that the call has begun in the moment in which it does: the handle is busy then.
TEST_F(ClientTest, ACallIsCancelledFromItsFirstMomentOn) {
  std::atomic<int> round = 0;
  constexpr int kRounds = 300;
  std::thread other([&] {
    wc::Client& handle = client;
    for (int i = 1; i <= kRounds; ++i) {
      while (round != i) std::this_thread::yield();
      while (code_of([&] { handle.abort(); }) != WC_BUSY) continue;
      handle.cancel();
    }
  });
  for (int i = 1; i <= kRounds; ++i) {
    round = i;
    // The other thread may have been inside its own call when this one came.
    wc_code code = WC_BUSY;
    while (code == WC_BUSY) code = code_of([&] { return client.status(60s); });
    EXPECT_EQ(code, WC_CANCELLED) << "round " << i;
  }
  other.join();
}

TEST_F(ClientTest, ASecondThreadIsToldThatTheHandleIsBusy) {
  std::thread other([this] {
    ASSERT_TRUE(daemon.receive());
    EXPECT_EQ(code_of([&] { return client.versions(5s); }), WC_BUSY);
    client.cancel();
  });
  EXPECT_EQ(code_of([&] { return client.status(20s); }), WC_CANCELLED);
  other.join();
}

TEST_F(ClientTest, ADaemonOfAnotherReleaseIsNamed) {
  daemon.answer(accepted_reply(1));
  EXPECT_EQ(code_of([&] { return client.status(); }), WC_UNSUPPORTED);
}

// ---- the C interface alone

TEST(CInterface, TheEnvironmentNamesTheStateDirectoryThatIsNotGiven) {
  const ScriptedDaemon daemon;
  wc_error error = WC_INIT(error);
  wc_client* client = nullptr;
  EXPECT_EQ(wc_open(nullptr, 1000, &client, &error), WC_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("WEIGHTCAST_STATE is not set"));
  ASSERT_EQ(::setenv("WEIGHTCAST_STATE", daemon.state_dir().c_str(), 1), 0);
  for (const char* given : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_EQ(wc_open(given, 1000, &client, &error), WC_OK) << error.message;
    wc_close(client);
  }
  EXPECT_EQ(wc_open("/nowhere", 1000, &client, &error), WC_NOT_FOUND) << "what is given comes first";
  ::unsetenv("WEIGHTCAST_STATE");
}

TEST(CInterface, RefusesNullPointersAndStructsOfOtherReleases) {
  wc_error error = WC_INIT(error);
  EXPECT_EQ(wc_open(nullptr, 0, nullptr, &error), WC_INVALID_ARGUMENT);
  EXPECT_EQ(error.code, WC_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("NULL"));
  EXPECT_EQ(wc_open(nullptr, 0, nullptr, nullptr), WC_INVALID_ARGUMENT) << "without a place for the error, too";
  char* json = nullptr;
  EXPECT_EQ(wc_status(nullptr, 0, &json, nullptr), WC_INVALID_ARGUMENT);
  wc_close(nullptr);
  wc_cancel(nullptr);
  wc_free(nullptr);
  wc_region_close(nullptr);
  wc_subscription_close(nullptr);
  EXPECT_EQ(wc_subscription_fd(nullptr), -1);

  const ScriptedDaemon daemon;
  wc_client* client = nullptr;
  ASSERT_EQ(wc_open(daemon.state_dir().c_str(), 1000, &client, &error), WC_OK);
  EXPECT_EQ(wc_status(client, 0, nullptr, &error), WC_INVALID_ARGUMENT);
  EXPECT_EQ(wc_begin(client, nullptr, nullptr, 1, nullptr, 0, &error), WC_INVALID_ARGUMENT);
  wc_publish_options old = WC_INIT(old);
  old.struct_size = 8;
  EXPECT_EQ(wc_publish_path(client, &old, "/weights", 0, nullptr, &error), WC_INVALID_ARGUMENT);
  struct {
    wc_publish_options known;
    std::uint64_t added;
  } grown{};
  grown.known.struct_size = sizeof grown;
  grown.added = 1;
  EXPECT_EQ(wc_publish_path(client, &grown.known, "/weights", 0, nullptr, &error), WC_UNSUPPORTED);
  grown.added = 0;
  EXPECT_EQ(wc_publish_path(client, &grown.known, "/weights", 0, nullptr, &error), WC_TIMED_OUT) << error.message;
  // What the first release had of a struct is enough.
  wc_publish_options first = WC_INIT(first);
  first.struct_size = offsetof(wc_publish_options, files);
  first.files_directory = "not looked at";
  EXPECT_EQ(wc_publish_path(client, &first, "/weights", 0, nullptr, &error), WC_TIMED_OUT) << error.message;
  wc_publish_options flags = WC_INIT(flags);
  flags.flags = 1u << 31;
  EXPECT_EQ(wc_publish_path(client, &flags, "/weights", 0, nullptr, &error), WC_INVALID_ARGUMENT);
  wc_close(client);
}

TEST(CInterface, NamesItsCodes) {
  EXPECT_STREQ(wc_code_name(WC_OK), "ok");
  EXPECT_STREQ(wc_code_name(WC_INVALID_ARGUMENT), "invalid argument");
  EXPECT_STREQ(wc_code_name(WC_CANCELLED), "cancelled");
  EXPECT_STREQ(wc_code_name(WC_TOO_FAR), "too far");
}

}  // namespace
}  // namespace weightcast
