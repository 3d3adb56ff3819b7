#include "client/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "tests/client/scripted_daemon.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct ClientTest : testing::Test {
  ScriptedDaemon daemon;
  Client client = [this] {
    auto opened = Client::open(daemon.state_dir());
    EXPECT_TRUE(opened.has_value());
    return std::move(*opened);
  }();
};

TEST(Client, WithoutADaemonSaysSo) {
  const auto client = Client::open("/nowhere");
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code, Errc::kNotFound);
}

TEST_F(ClientTest, LateAnswerIsNotTakenForTheNextCalls) {
  const auto late = client.status(milliseconds(30));
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Errc::kTimedOut);
  daemon.play([this] {
    const auto status = daemon.receive();
    const auto versions = daemon.receive();
    ASSERT_TRUE(status && versions);
    local::Message answer;
    answer.mutable_status_reply()->set_last(true);
    daemon.send(answer, status->request_id());
    daemon.send(error_reply(Errc::kBusy, "the first call's"), status->request_id());
    local::Message wanted;
    wanted.mutable_versions_reply()->add_versions()->set_version(7);
    daemon.send(wanted, versions->request_id());
  });
  const auto versions = client.versions(seconds(5));
  ASSERT_TRUE(versions.has_value()) << versions.error().message();
  ASSERT_EQ(versions->versions_size(), 1);
  EXPECT_EQ(versions->versions(0).version(), 7u);
}

TEST_F(ClientTest, AnswersDoNotMoveACallsDeadline) {
  struct Progress {
    std::atomic<bool> call_ended = false, answers_ended = false;
  };
  const auto progress = std::make_shared<Progress>();
  daemon.play([this, progress] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request);
    local::Message page;
    page.mutable_status_reply()->set_latest_version(1);
    for (int i = 0; i < 1000 && !progress->call_ended; ++i) {
      daemon.send(page, request->request_id());
      std::this_thread::sleep_for(milliseconds(20));
    }
    progress->answers_ended = true;
  });
  const auto status = client.status(milliseconds(100));
  EXPECT_FALSE(progress->answers_ended) << "20 s of answers were all heard";
  progress->call_ended = true;
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Errc::kTimedOut);
}

TEST_F(ClientTest, StatusIsPutTogetherFromItsParts) {
  daemon.play([this] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request);
    for (int i = 0; i < 3; ++i) {
      local::Message part;
      local::StatusReply& reply = *part.mutable_status_reply();
      reply.set_latest_version(9);
      local::NodeStatus* node = reply.add_nodes();
      node->set_name("n" + std::to_string(i));
      if (i > 0) node->set_parent("n" + std::to_string(i - 1));
      reply.set_last(i == 2);
      daemon.send(part, request->request_id());
    }
  });
  const auto status = client.status();
  ASSERT_TRUE(status.has_value()) << status.error().message();
  EXPECT_EQ(status->latest_version(), 9u);
  ASSERT_EQ(status->nodes_size(), 3);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(status->nodes(i).children_size(), 1) << i;
    EXPECT_EQ(status->nodes(i).children(0), "n" + std::to_string(i + 1));
  }
  EXPECT_EQ(status->nodes(2).children_size(), 0);
}

TEST_F(ClientTest, AnErrorOfTheDaemonComesAsItIs) {
  daemon.play([this] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request);
    daemon.send(error_reply(Errc::kAlreadyExists, "version 3: not greater"), request->request_id());
  });
  const auto outcome = client.publish(Version{3}, "/weights", {});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Errc::kAlreadyExists);
  EXPECT_EQ(outcome.error().detail, "version 3: not greater");
}

TEST_F(ClientTest, ARequestAboveTheLimitIsAnErrorAndTheNextOneWorks) {
  const auto outcome = client.publish(Version{1}, std::string(5 << 20, 'x'), {});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Errc::kTooLarge);
  daemon.play([this] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request);
    EXPECT_EQ(request->publish_request().path(), "/weights");
    daemon.send(taken_reply(1), request->request_id());
    daemon.send(result_reply(1), request->request_id());
  });
  EXPECT_TRUE(client.publish(Version{1}, "/weights", {}).has_value());
}

// Half a request cannot be followed by another one.
TEST_F(ClientTest, ARequestThatWasSentInPartEndsTheConnection) {
  const std::string path(3 << 20, 'x');  // more than a socket holds, and nobody reads
  PublishOptions options;
  options.timeout = milliseconds(50);
  const auto first = client.publish(Version{1}, path, options);
  ASSERT_FALSE(first.has_value());
  EXPECT_EQ(first.error().code, Errc::kTimedOut);
  const auto second = client.status(milliseconds(50));
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Errc::kClosed);
}

TEST_F(ClientTest, AnyTimeOutIsTaken) {
  daemon.play([this] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request);
    local::Message answer;
    answer.mutable_versions_reply();
    daemon.send(answer, request->request_id());
  });
  EXPECT_TRUE(client.versions(Duration::max()).has_value());
  const auto none = client.versions(Duration::min());
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Errc::kTimedOut);
}

TEST(VersionSubscription, TellsVersionsAndWhenToLetGo) {
  ScriptedDaemon daemon;
  auto subscription = VersionSubscription::open(daemon.state_dir());
  ASSERT_TRUE(subscription.has_value());
  std::vector<std::uint64_t> prepared;
  subscription->on_prepare([&](Version version) { prepared.push_back(version.value); });
  daemon.play([&] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request && request->has_subscribe_request());
    local::Message preparing, installed;
    preparing.mutable_version_preparing()->set_version(4);
    installed.mutable_version_installed()->set_version(4);
    installed.mutable_version_installed()->set_path("/versions/4");
    daemon.send(preparing, request->request_id());
    daemon.send(installed, request->request_id());
    daemon.end();
  });
  const auto next = subscription->next(seconds(5));
  ASSERT_TRUE(next.has_value()) << next.error().message();
  EXPECT_EQ(next->version, Version{4});
  EXPECT_EQ(next->path, "/versions/4");
  EXPECT_EQ(prepared, std::vector<std::uint64_t>{4});
  const auto after = subscription->next(seconds(5));
  ASSERT_FALSE(after.has_value());
  EXPECT_EQ(after.error().code, Errc::kClosed);
}

}  // namespace
}  // namespace weightcast
