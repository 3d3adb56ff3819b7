#include "transport/node/local_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <filesystem>

#include "tests/transport/io/io_fixture.h"
#include "transport/io/net/dial.h"
#include "transport/io/net/socket_network.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Kind = local::Message::KindCase;

/// A node that says what the test wants.
struct FakeService final : LocalService {
  local::StatusReply nodes;
  local::VersionsReply kept;
  std::optional<local::VersionInstalled> in_use;
  std::optional<local::VersionPreparing> letting_go;
  std::vector<std::pair<std::string, std::function<void(Result<std::uint64_t>)>>> publications;
  std::optional<local::PublishResult> result;

  local::StatusReply status() override { return nodes; }
  local::VersionsReply versions() override { return kept; }
  std::optional<local::VersionInstalled> installed() override { return in_use; }
  std::optional<local::VersionPreparing> preparing() override { return letting_go; }
  void publish(const local::PublishRequest& request, std::function<void(Result<std::uint64_t>)> taken) override {
    publications.emplace_back(request.path(), std::move(taken));
  }
  std::optional<local::PublishResult> publish_result(Version, double) override { return result; }
  local::PublishProgress publish_progress(Version) override { return {}; }
};

/// A program at the other end of the socket.
struct Program : End {
  std::optional<DialLocal> dial;

  Program(Net& net, const std::string& path) {
    dial.emplace(net.context(), path, [this](Result<std::unique_ptr<FrameConnection>> made) {
      ASSERT_TRUE(made.has_value()) << made.error().message();
      adopt(std::move(*made));
    });
    EXPECT_TRUE(net.run_until([&] { return connection != nullptr; }));
  }
  void ask(std::uint64_t id, local::Message message) {
    message.set_request_id(id);
    connection->send_control(message.SerializeAsString());
  }
  [[nodiscard]] local::Message answer(std::size_t i) const {
    local::Message message;
    EXPECT_TRUE(message.ParseFromString(controls.at(i)));
    return message;
  }
};

local::Message status_request() {
  local::Message message;
  message.mutable_status_request();
  return message;
}
local::Message versions_request() {
  local::Message message;
  message.mutable_versions_request();
  return message;
}
local::Message subscribe_request() {
  local::Message message;
  message.mutable_subscribe_request();
  return message;
}
local::Message publish_request(std::uint64_t version, const std::string& path) {
  local::Message message;
  message.mutable_publish_request()->set_version(version);
  message.mutable_publish_request()->set_path(path);
  message.mutable_publish_request()->set_wait_fraction(1);
  message.mutable_publish_request()->set_timeout_s(60);
  return message;
}

struct LocalApiTest : testing::Test {
  std::filesystem::path directory = [] {
    std::string name = (std::filesystem::temp_directory_path() / "weightcast-api-XXXXXX").string();
    return std::filesystem::path(::mkdtemp(name.data()));
  }();
  std::string path = (directory / "api.sock").string();
  Net net;
  SocketNetwork network{net.loop, Rate{}, Rate{}, SocketOptions{}};
  FakeService service;
  std::unique_ptr<LocalApi> api = [this] {
    auto opened = LocalApi::open(net.loop, network, path, service);
    EXPECT_TRUE(opened.has_value());
    return std::move(*opened);
  }();

  ~LocalApiTest() override { std::filesystem::remove_all(directory); }

  [[nodiscard]] testing::AssertionResult answered(const Program& program, std::size_t count) {
    return net.run_until([&] { return program.controls.size() >= count || program.closed; });
  }
};

TEST_F(LocalApiTest, StatusOfTenThousandMembersComesInPagesThatFit) {
  service.nodes.set_latest_version(7);
  for (int i = 0; i < 10'000; ++i) {
    local::NodeStatus* node = service.nodes.add_nodes();
    node->set_name(std::to_string(i) + std::string(250, 'n'));
    node->set_parent(std::string(255, 'p'));
    node->set_last_error(std::string(1024, '\xff'));
  }
  Program program(net, path);
  program.ask(3, status_request());
  int nodes = 0;
  std::size_t pages = 0;
  for (bool last = false; !last; ++pages) {
    ASSERT_TRUE(answered(program, pages + 1));
    ASSERT_FALSE(program.closed.has_value()) << program.closed->message();
    const local::Message answer = program.answer(pages);
    EXPECT_EQ(answer.request_id(), 3u);
    EXPECT_EQ(answer.status_reply().latest_version(), 7u);
    EXPECT_LT(program.controls[pages].size(), LocalApi::kStatusPageBytes + 4 * kKiB);
    for (const local::NodeStatus& node : answer.status_reply().nodes()) {
      ASSERT_EQ(std::stoi(node.name()), nodes);
      ++nodes;
    }
    last = answer.status_reply().last();
  }
  EXPECT_EQ(nodes, 10'000);
  EXPECT_GT(pages, 50u);
}

TEST_F(LocalApiTest, StatusOfNobodyIsOnePage) {
  Program program(net, path);
  program.ask(1, status_request());
  ASSERT_TRUE(answered(program, 1));
  EXPECT_TRUE(program.answer(0).status_reply().last());
}

// Requests pile up at whoever sends them: a program that asks and does not read costs one answer.
TEST_F(LocalApiTest, AProgramThatDoesNotReadIsAnsweredOnce) {
  for (int i = 0; i < 2000; ++i) service.nodes.add_nodes()->set_last_error(std::string(1024, 'x'));
  Program program(net, path);
  program.connection->pause_reading();
  for (std::uint64_t id = 1; id <= 3; ++id) program.ask(id, status_request());
  net.run_for(milliseconds(50));
  program.connection->resume_reading();
  std::vector<std::uint64_t> ended;
  for (std::size_t i = 0; ended.size() < 3; ++i) {
    ASSERT_TRUE(answered(program, i + 1));
    const local::Message answer = program.answer(i);
    EXPECT_EQ(answer.request_id(), ended.size() + 1) << "in order, one after the other";
    if (answer.status_reply().last()) ended.push_back(answer.request_id());
  }
  EXPECT_EQ(ended, (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(LocalApiTest, AnAnswerAboveTheLimitIsAnError) {
  for (int i = 0; i < 1500; ++i) service.kept.add_versions()->set_path(std::string(4000, 'x'));
  Program program(net, path);
  program.ask(1, versions_request());
  program.ask(2, status_request());
  ASSERT_TRUE(answered(program, 2));
  EXPECT_EQ(program.answer(0).request_id(), 1u);
  EXPECT_EQ(program.answer(0).error_reply().code(), static_cast<std::uint32_t>(Errc::kTooLarge));
  EXPECT_EQ(program.answer(1).request_id(), 2u) << "the connection stays";
}

TEST_F(LocalApiTest, PathsThatAreNoneAreRefused) {
  Program program(net, path);
  program.ask(1, publish_request(1, ""));
  program.ask(2, publish_request(1, std::string(PATH_MAX, 'x')));
  program.ask(3, publish_request(1, std::string("/weights\0/elsewhere", 19)));
  ASSERT_TRUE(answered(program, 3));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(program.answer(i).request_id(), i + 1);
    EXPECT_EQ(program.answer(i).error_reply().code(), static_cast<std::uint32_t>(Errc::kInvalidArgument));
  }
  EXPECT_TRUE(service.publications.empty());
}

TEST_F(LocalApiTest, ARequestOfFourMegabytesIsClosedAndOthersGoOn) {
  Program program(net, path);
  program.ask(1, publish_request(1, std::string(kControlBytesMax - 64, 'x')));
  ASSERT_TRUE(net.run_until([&] { return program.closed.has_value(); }));
  EXPECT_TRUE(service.publications.empty());
  Program other(net, path);
  other.ask(1, status_request());
  EXPECT_TRUE(answered(other, 1));
}

TEST_F(LocalApiTest, ALongErrorIsCutBetweenCharacters) {
  Program program(net, path);
  program.ask(1, publish_request(1, "/weights"));
  ASSERT_TRUE(net.run_until([&] { return service.publications.size() == 1; }));
  std::string detail;
  for (int i = 0; i < 100'000; ++i) detail += "ä";
  service.publications[0].second(fail(Errc::kCorrupt, Op::kPublish, detail));
  ASSERT_TRUE(answered(program, 1));
  EXPECT_LE(program.answer(0).error_reply().detail().size(), 8 * kKiB);
  EXPECT_EQ(program.answer(0).error_reply().detail().size() % 2, 0u);
}

TEST_F(LocalApiTest, PublicationsAreTakenOverInTurnAndTooManyAreRefused) {
  Program program(net, path);
  const std::size_t all = 1 + LocalApi::kPublishQueueMax;
  for (std::uint64_t i = 1; i <= all; ++i) program.ask(i, publish_request(i, std::to_string(i)));
  program.ask(100, publish_request(100, "100"));
  ASSERT_TRUE(answered(program, 1));
  EXPECT_EQ(program.answer(0).request_id(), 100u);
  EXPECT_EQ(program.answer(0).error_reply().code(), static_cast<std::uint32_t>(Errc::kBusy));
  for (std::size_t i = 0; i < all; ++i) {
    ASSERT_EQ(service.publications.size(), i + 1) << "one at a time";
    EXPECT_EQ(service.publications[i].first, std::to_string(i + 1));
    service.publications[i].second(fail(Errc::kCorrupt, Op::kPublish, "not weights"));
  }
  ASSERT_TRUE(answered(program, 1 + all));
  for (std::size_t i = 1; i <= all; ++i) EXPECT_EQ(program.answer(i).request_id(), i);
}

TEST_F(LocalApiTest, EachPublicationHearsItsOwnEnd) {
  Program program(net, path);
  service.result.emplace();
  for (std::uint64_t version = 1; version <= 2; ++version) {
    program.ask(10 + version, publish_request(version, "/weights"));
    ASSERT_TRUE(net.run_until([&] { return service.publications.size() == version; }));
    service.publications.back().second(1000);
  }
  ASSERT_TRUE(answered(program, 3));
  EXPECT_EQ(program.answer(0).request_id(), 11u);
  EXPECT_EQ(program.answer(0).publish_taken().snapshot_bytes(), 1000u);
  EXPECT_EQ(program.answer(1).request_id(), 12u);
  EXPECT_TRUE(program.answer(1).has_publish_taken());
  EXPECT_EQ(program.answer(2).request_id(), 11u);
  EXPECT_THAT(program.answer(2).error_reply().detail(), HasSubstr("version 2"));
  service.result->set_reached(true);
  api->handle_change();
  ASSERT_TRUE(answered(program, 4));
  EXPECT_EQ(program.answer(3).request_id(), 12u);
  EXPECT_TRUE(program.answer(3).has_publish_result());
}

TEST_F(LocalApiTest, AProgramThatHasGoneIsNotAnswered) {
  {
    Program program(net, path);
    program.ask(1, publish_request(1, "/weights"));
    ASSERT_TRUE(net.run_until([&] { return service.publications.size() == 1; }));
  }
  net.run_for(milliseconds(20));
  service.publications[0].second(1000);
  Program other(net, path);
  other.ask(1, status_request());
  EXPECT_TRUE(answered(other, 1));
}

TEST_F(LocalApiTest, SubscribersHearOfEachVersionUnderTheirRequest) {
  Program program(net, path);
  program.ask(5, subscribe_request());
  service.in_use.emplace().set_version(1);
  net.run_for(milliseconds(20));
  api->handle_change();
  api->handle_change();
  ASSERT_TRUE(answered(program, 1));
  service.letting_go.emplace().set_version(2);
  api->handle_change();
  ASSERT_TRUE(answered(program, 2));
  service.letting_go.reset();
  api->handle_change();
  ASSERT_TRUE(answered(program, 3));
  net.run_for(milliseconds(10));
  ASSERT_EQ(program.controls.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(program.answer(i).request_id(), 5u);
  EXPECT_EQ(program.answer(1).version_preparing().version(), 2u);
  EXPECT_EQ(program.answer(2).version_installed().version(), 1u) << "it can have the old one again";
}

TEST_F(LocalApiTest, BytesThatAreNoRequestCloseTheConnection) {
  Program program(net, path);
  program.connection->send_control("\xff\xff\xff");
  ASSERT_TRUE(net.run_until([&] { return program.closed.has_value(); }));
  Program chunk(net, path);
  chunk.connection->send_chunk(Version{1}, ChunkIndex{0}, net.buffers.take(1), nullptr);
  ASSERT_TRUE(net.run_until([&] { return chunk.closed.has_value(); }));
}

TEST_F(LocalApiTest, TooManyConnectionsAreClosedAndOneThatEndsMakesRoom) {
  std::vector<std::unique_ptr<Program>> programs;
  for (std::size_t i = 0; i < LocalApi::kSessionsMax; ++i) programs.push_back(std::make_unique<Program>(net, path));
  Program refused(net, path);
  ASSERT_TRUE(net.run_until([&] { return refused.closed.has_value(); }));
  programs.pop_back();
  net.run_for(milliseconds(20));
  Program taken(net, path);
  taken.ask(1, status_request());
  ASSERT_TRUE(answered(taken, 1));
  EXPECT_FALSE(taken.closed.has_value());
}

}  // namespace
}  // namespace weightcast
