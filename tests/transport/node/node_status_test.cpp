// What real nodes, run on the test's own thread, say of themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/limits.h"
#include "tests/local_message.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "tests/transport/core/worker_fixture.h"
#include "tests/transport/io/io_fixture.h"
#include "transport/io/net/dial.h"
#include "transport/io/net/socket_network.h"
#include "transport/node/node.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

struct NodeStatusTest : testing::Test {
  const TempDir directory;
  Net net;  // the peers' end
  UvLoop loop;
  SocketNetwork network{loop, Rate{}, Rate{}, SocketOptions{}};

  DaemonConfig config(const std::string& name, Role role) {
    DaemonConfig config;
    config.role = role;
    config.name = name;
    config.state = directory.file(name);
    config.disk = DiskBackend::kThreadPool;
    if (role == Role::kWorker) config.origin = Endpoint{"127.0.0.1", 1};
    return config;
  }
  std::unique_ptr<Node> open(const DaemonConfig& config) {
    const auto open_store = [this](StoreOptions options) {
      return Store::open(loop, real_files(), std::move(options));
    };
    auto node = open_node(config, {loop, network, real_files(), open_store, [] { return std::uint64_t{1}; }});
    EXPECT_TRUE(node.has_value()) << node.error().message();
    return std::move(*node);
  }
  /// Turns both loops until `done` holds.
  template <typename Condition>
  [[nodiscard]] testing::AssertionResult run_until(Condition done) {
    const Instant deadline = net.loop.now() + std::chrono::seconds(20);
    while (!done()) {
      if (net.loop.now() >= deadline) return testing::AssertionFailure() << "did not happen in 20 s";
      loop.run_until(loop.now() + milliseconds(1));
      net.loop.run_until(net.loop.now());
    }
    return testing::AssertionSuccess();
  }
};

struct Peer : End {
  std::optional<Dial> dial;
  Peer(Net& net, const Endpoint& to, const wire::Message& first) {
    dial.emplace(net.context(), to, [this, first](Result<std::unique_ptr<FrameConnection>> made) {
      ASSERT_TRUE(made.has_value()) << made.error().message();
      adopt(std::move(*made));
      connection->send_control(first.SerializeAsString());
    });
  }
};

TEST_F(NodeStatusTest, OfAnOriginAlone) {
  DaemonConfig settings = config("trainer", Role::kOrigin);
  settings.model_id = "m";
  settings.uplink = Rate{1e6};
  const auto node = open(settings);
  const local::StatusReply status = node->status();
  EXPECT_EQ(status.latest_version, 0u);
  EXPECT_EQ(status.model_id, "m");
  ASSERT_EQ(status.nodes.size(), 1u);
  EXPECT_EQ(status.nodes[0].name, "trainer");
  EXPECT_EQ(status.nodes[0].role, "origin");
  EXPECT_EQ(status.nodes[0].state, "idle");
  EXPECT_EQ(status.nodes[0].address, node->endpoint().to_string());
  EXPECT_EQ(status.nodes[0].uplink_bytes_per_s, 1e6);
  EXPECT_EQ(node->versions().versions.size(), 0u);
  EXPECT_FALSE(node->installed().has_value());
}

TEST_F(NodeStatusTest, OfAWorkerThatCannotReachItsOrigin) {
  const auto node = open(config("a", Role::kWorker));
  ASSERT_TRUE(run_until([&] { return !node->status().nodes[0].last_error.empty(); }));
  const local::StatusReply status = node->status();
  ASSERT_EQ(status.nodes.size(), 1u);
  EXPECT_EQ(status.nodes[0].name, "a");
  EXPECT_EQ(status.nodes[0].role, "worker");
  EXPECT_EQ(status.nodes[0].state, "dialling");
  EXPECT_THAT(status.nodes[0].last_error, HasSubstr("127.0.0.1:1"));
}

TEST_F(NodeStatusTest, OfAWorkerDoesNotPublish) {
  const auto node = open(config("a", Role::kWorker));
  std::optional<Error> refused;
  node->publish(PublishOrder{}, [&](const Result<TakenOver>& taken) { refused = taken.error(); });
  ASSERT_TRUE(run_until([&] { return refused.has_value(); }));
  EXPECT_EQ(refused->code, Errc::kNotAllowed);
}

TEST_F(NodeStatusTest, TellsMembersTheirStateAndWhyTheyWereLost) {
  const auto node = open(config("origin", Role::kOrigin));
  Peer worker(net, node->endpoint(), join_message("gpu-1", 1, true));
  ASSERT_TRUE(run_until([&] { return node->status().nodes.size() == 2; }));
  EXPECT_EQ(node->status().nodes[1].name, "gpu-1");
  EXPECT_EQ(node->status().nodes[1].state, "idle");
  EXPECT_EQ(node->status().nodes[1].standing, "leaf");
  wire::Message leave;
  leave.mutable_leave()->set_reason(std::string(3000, 'x'));
  worker.connection->send_control(leave.SerializeAsString());
  ASSERT_TRUE(run_until([&] { return node->status().nodes[1].state == "lost"; }));
  EXPECT_THAT(node->status().nodes[1].last_error, HasSubstr("xxx"));
  EXPECT_LE(node->status().nodes[1].last_error.size(), kReasonBytesMax);
}

// The origin remembers some of those that were lost.
TEST_F(NodeStatusTest, OfManyThatCameAndWentIsReadInParts) {
  const auto node = open(config("origin", Role::kOrigin));
  constexpr int kMembers = 1000;
  const std::string long_name(200, 'n');
  wire::Message leave;
  leave.mutable_leave()->set_reason(std::string(kReasonBytesMax, 'x'));
  for (int done = 0; done < kMembers; done += 100) {
    std::vector<std::unique_ptr<Peer>> peers;
    for (int i = 0; i < 100; ++i) {
      peers.push_back(
          std::make_unique<Peer>(net, node->endpoint(), join_message(std::to_string(done + i) + long_name, 1, true)));
    }
    ASSERT_TRUE(run_until(
        [&] { return std::ranges::all_of(peers, [](const auto& peer) { return !peer->controls.empty(); }); }));
    for (const auto& peer : peers) peer->connection->send_control(leave.SerializeAsString());
    ASSERT_TRUE(run_until(
        [&] { return std::ranges::all_of(peers, [](const auto& peer) { return peer->closed.has_value(); }); }));
  }
  const std::vector<local::NodeStatus> nodes = node->status().nodes;
  std::size_t bytes = 0;
  for (const local::NodeStatus& one : nodes) bytes += local::encoded_bytes(one);
  ASSERT_GT(bytes, LocalApi::kStatusPageBytes);

  End program;
  DialLocal dial(net.context(), directory.file("origin/api.sock"), [&](Result<std::unique_ptr<FrameConnection>> made) {
    ASSERT_TRUE(made.has_value());
    program.adopt(std::move(*made));
    program.connection->send_control(local::encode({.kind = local::StatusRequest{}}));
  });
  std::size_t nodes_told = 0, parts = 0;
  bool last = false;
  ASSERT_TRUE(run_until([&] {
    for (; parts < program.controls.size(); ++parts) {
      const auto part = as<local::StatusReply>(local::decode(program.controls[parts]).value_or(local::Message{}));
      nodes_told += part.nodes.size();
      last = part.last;
    }
    return last;
  }));
  EXPECT_EQ(nodes_told, nodes.size());
  EXPECT_GT(parts, 1u);
}

}  // namespace
}  // namespace weightcast
