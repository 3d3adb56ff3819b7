// A relay with keys of its own that is a worker like any other, but for the chunks that it forwards: the other workers
// are real daemons, and get each version bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "base/posix_file_system.h"
#include "tests/e2e/cluster.h"
#include "transport/io/net/socket_network.h"
#include "transport/io/uv_loop.h"
#include "transport/node/node.h"
#include "transport/node/signed_manifests.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = 8'000'000;

enum class Forgery { kFlipsABit, kSendsNothing };

/// A connection whose chunks are not what its node meant to send.
class ForgingConnection final : public FrameConnection {
 public:
  ForgingConnection(UvLoop& loop, Forgery forgery, std::atomic<int>& forged, std::unique_ptr<FrameConnection> inner)
      : loop_(loop), forgery_(forgery), forged_(forged), inner_(std::move(inner)) {}

  void set_handlers(Handlers handlers) override { inner_->set_handlers(std::move(handlers)); }
  void set_receive_limits(const ReceiveLimits& limits) override { inner_->set_receive_limits(limits); }
  void keep_while_open(std::shared_ptr<void> token) override { inner_->keep_while_open(std::move(token)); }
  void send_control(std::string body) override { inner_->send_control(std::move(body)); }
  void send_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void()> on_sent) override {
    ++forged_;
    if (forgery_ == Forgery::kSendsNothing) {
      // Its node believes that the chunk has left, and says UpToDate in the end.
      return loop_.post([alive = std::weak_ptr<bool>(alive_), on_sent = std::move(on_sent)] {
        if (!alive.expired()) on_sent();
      });
    }
    auto forged = std::make_shared<Buffer>(bytes->capacity());
    std::ranges::copy(bytes->bytes(), forged->data());
    forged->set_size(bytes->size());
    forged->data()[bytes->size() / 2] ^= std::byte{1};
    inner_->send_chunk(payload, chunk, std::move(forged), std::move(on_sent));
  }
  void close() override {
    alive_.reset();
    inner_->close();
  }
  void pause_reading() override { inner_->pause_reading(); }
  void resume_reading() override { inner_->resume_reading(); }
  [[nodiscard]] UniqueFd take_descriptor() override { return inner_->take_descriptor(); }
  [[nodiscard]] bool awaits_peer() const override { return inner_->awaits_peer(); }
  [[nodiscard]] std::optional<PeerIdentity> peer() const override { return inner_->peer(); }
  [[nodiscard]] std::string peer_host() const override { return inner_->peer_host(); }
  [[nodiscard]] std::uint64_t bytes_received() const override { return inner_->bytes_received(); }
  [[nodiscard]] std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }

 private:
  UvLoop& loop_;
  const Forgery forgery_;
  std::atomic<int>& forged_;
  const std::unique_ptr<FrameConnection> inner_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();
};

/// Sockets, of which those that others have dialled forge: children dial their parents.
class ForgingNetwork final : public Network {
 public:
  ForgingNetwork(UvLoop& loop, Forgery forgery, std::shared_ptr<TlsContext> tls)
      : loop_(loop), forgery_(forgery), sockets_(loop, Rate{}, Rate{}, {}, std::move(tls)) {}

  std::unique_ptr<Attempt> dial(const Endpoint& to, OnDialled on_dialled) override {
    return sockets_.dial(to, std::move(on_dialled));
  }
  Result<std::unique_ptr<Listener>> listen(const Endpoint& at, Listener::OnConnection on_connection) override {
    return sockets_.listen(at, [this, on_connection = std::move(on_connection)](std::unique_ptr<FrameConnection> c) {
      on_connection(std::make_unique<ForgingConnection>(loop_, forgery_, forged_, std::move(c)));
    });
  }
  Result<std::unique_ptr<Listener>> listen_locally(const std::string& path,
                                                   Listener::OnConnection on_connection) override {
    return sockets_.listen_locally(path, std::move(on_connection));
  }
  /// Chunks, so far; from any thread.
  [[nodiscard]] int forged() const { return forged_; }

 private:
  UvLoop& loop_;
  const Forgery forgery_;
  std::atomic<int> forged_ = 0;
  SocketNetwork sockets_;
};

/// Worker "forger" in this process: the daemon's own node, on connections that forge.
class Forger {
 public:
  Forger(const ClusterKeys& keys, const std::string& state, const std::string& origin, Forgery forgery)
      : tls_(TlsContext::make(keys.worker("forger"))), network_(loop_, forgery, tls_) {
    DaemonConfig config;
    config.role = Role::kWorker;
    config.name = "forger";
    config.state = state;
    config.origin = Endpoint::parse(origin).value();
    NodeEnvironment environment{loop_, network_, files_,
                                [this](StoreOptions options) { return Store::open(loop_, files_, std::move(options)); },
                                [] { return std::uint64_t{0xf0}; }};
    environment.trust = std::make_shared<ClusterTrust>(tls_, TrustOptions{});
    auto opened = open_node(config, environment);
    EXPECT_TRUE(opened.has_value());
    node_ = std::move(*opened);
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Forger() {
    loop_.post([this] { loop_.stop(); });
    thread_.join();
    node_.reset();
  }
  Forger(const Forger&) = delete;
  Forger& operator=(const Forger&) = delete;

  [[nodiscard]] int forged() const { return network_.forged(); }

 private:
  PosixFileSystem files_;
  UvLoop loop_;
  std::shared_ptr<TlsContext> tls_;
  ForgingNetwork network_;
  std::unique_ptr<Node> node_;
  std::thread thread_;
};

class HostileRelay : public ::testing::TestWithParam<Forgery> {
 protected:
  HostileRelay() { cluster.use_keys(keys); }

  ClusterKeys keys;
  Cluster cluster;
};

TEST_P(HostileRelay, IsNamedAndLosesItsPlaceAndOthersGetEachVersionBitForBit) {
  cluster.start_origin({"--topology", "chain", "--no-patches", "--pack", "never"});
  // It joins first, so it comes first in the chain.
  const Forger forger(keys, cluster.temp().file("forger"), cluster.address("origin"), GetParam());
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.node("origin", "forger").is_null(); }));
  for (const char* name : {"a", "b", "c"}) cluster.start_worker(name);
  int forged = 0;
  for (unsigned version = 1; version <= 3; ++version) {
    const std::string source =
        write_snapshot(cluster.temp().file(std::to_string(version) + ".safetensors"), kBytes, version);
    const Ran ran = cluster.publish(source, version, {"--wait", "1", "--timeout", "60"});
    ASSERT_EQ(ran.status, 0) << ran.err << cluster.status("origin") << cluster.log("origin");
    for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(cluster.holds(name, source)) << name << cluster.log(name);
    EXPECT_GT(cluster.node("origin", "forger").at("complaints").get<int>(), 0) << cluster.log("origin");
    if (version == 1) forged = forger.forged();
  }
  EXPECT_GT(forged, 0) << "it was a relay once";
  EXPECT_EQ(forger.forged(), forged) << "and feeds nobody after that";
  EXPECT_THAT(cluster.log("origin"),
              HasSubstr(GetParam() == Forgery::kFlipsABit ? "worker forger sends damaged bytes, says"
                                                          : "worker forger has more than it passes on, says"));
}

INSTANTIATE_TEST_SUITE_P(Forgeries, HostileRelay, ::testing::Values(Forgery::kFlipsABit, Forgery::kSendsNothing),
                         [](const auto& each) {
                           return std::string(each.param == Forgery::kFlipsABit ? "FlipsABit" : "SendsNothing");
                         });

}  // namespace
}  // namespace weightcast
