#include "tests/e2e/hostile/hostile_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "transport/core/manifest/payload_wire.h"
#include "transport/node/payload/signed_manifests.h"

namespace weightcast {
namespace {

// A chunk in this time, whatever there is to send: below the second after which a child says that it starves.
constexpr Duration kDelay = std::chrono::milliseconds(600);
constexpr Duration kComplainEvery = std::chrono::milliseconds(300);
// Of what it receives: so that it receives for seconds what it says that it lacks.
constexpr Rate kUnderstaterDownlink{2e6};

}  // namespace

std::string_view to_string(Conduct conduct) {
  switch (conduct) {
    case Conduct::kHonest: return "Honest";
    case Conduct::kFlipsABit: return "FlipsABit";
    case Conduct::kSendsNothing: return "SendsNothing";
    case Conduct::kReplaysBytes: return "ReplaysBytes";
    case Conduct::kReplaysVersion: return "ReplaysVersion";
    case Conduct::kDelays: return "Delays";
    case Conduct::kServesHalf: return "ServesHalf";
    case Conduct::kOverstates: return "Overstates";
    case Conduct::kUnderstates: return "Understates";
  }
  return "Unknown";
}

/// Passes everything on.
class HostileNetwork::Connection : public FrameConnection {
 public:
  Connection(HostileNetwork& network, std::unique_ptr<FrameConnection> inner)
      : network_(network), inner_(std::move(inner)) {}

  void set_handlers(Handlers handlers) override { inner_->set_handlers(std::move(handlers)); }
  void set_receive_limits(const ReceiveLimits& limits) override { inner_->set_receive_limits(limits); }
  void set_uplink_share(std::shared_ptr<Pacer::Share> share) override { inner_->set_uplink_share(std::move(share)); }
  void keep_while_open(std::shared_ptr<void> token) override { inner_->keep_while_open(std::move(token)); }
  void send_control(std::string body) override { inner_->send_control(std::move(body)); }
  void send_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void()> on_sent) override {
    inner_->send_chunk(payload, chunk, std::move(bytes), std::move(on_sent));
  }
  void close() override { inner_->close(); }
  void pause_reading() override { inner_->pause_reading(); }
  void resume_reading() override { inner_->resume_reading(); }
  [[nodiscard]] UniqueFd take_descriptor() override { return inner_->take_descriptor(); }
  [[nodiscard]] bool awaits_peer() const override { return inner_->awaits_peer(); }
  [[nodiscard]] std::optional<PeerIdentity> peer() const override { return inner_->peer(); }
  [[nodiscard]] std::string peer_host() const override { return inner_->peer_host(); }
  [[nodiscard]] std::uint64_t bytes_received() const override { return inner_->bytes_received(); }
  [[nodiscard]] std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }

 protected:
  HostileNetwork& network_;
  const std::unique_ptr<FrameConnection> inner_;
};

class HostileNetwork::ToChild final : public Connection {
 public:
  ToChild(HostileNetwork& network, std::unique_ptr<FrameConnection> inner)
      : Connection(network, std::move(inner)), next_(network.loop_, [this] { send_held(); }) {}

  void send_control(std::string body) override {
    wire::Message message;
    if (message.ParseFromString(body) && message.has_digest_part()) {
      const std::uint64_t version = message.digest_part().payload().version();
      network_.digests_sent_[version].push_back(body);
      if (network_.conduct_ == Conduct::kReplaysVersion && version > 1) {
        for (const std::string& old : network_.digests_sent_[version - 1]) Connection::send_control(old);
        return;
      }
    }
    Connection::send_control(std::move(body));
  }

  void send_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void()> on_sent) override {
    Chunks& now = network_.forwarded_[payload.version.value];
    now[chunk.value] = bytes;
    switch (network_.conduct_) {
      case Conduct::kHonest: break;
      case Conduct::kFlipsABit: {
        auto forged = std::make_shared<Buffer>(bytes->capacity());
        std::ranges::copy(bytes->bytes(), forged->data());
        forged->set_size(bytes->size());
        forged->data()[bytes->size() / 2] ^= std::byte{1};
        bytes = std::move(forged);
        ++network_.changed_;
        break;
      }
      case Conduct::kServesHalf:
        if (chunk.value % 2 == 0) break;
        [[fallthrough]];
      case Conduct::kSendsNothing:
      case Conduct::kUnderstates: return keep(std::move(on_sent));
      case Conduct::kReplaysBytes:
      case Conduct::kReplaysVersion: {
        Chunks& before = network_.forwarded_[payload.version.value - 1];
        const auto old = before.find(chunk.value);
        if (old == before.end()) break;
        bytes = old->second;
        if (network_.conduct_ == Conduct::kReplaysVersion) payload.version = Version{payload.version.value - 1};
        ++network_.changed_;
        break;
      }
      case Conduct::kDelays:
      case Conduct::kOverstates:
        held_.push_back({payload, chunk, std::move(bytes), std::move(on_sent)});
        if (!next_.armed()) next_.arm(network_.loop_.now() + kDelay);
        ++network_.changed_;
        return;
    }
    Connection::send_chunk(payload, chunk, std::move(bytes), std::move(on_sent));
  }

  void close() override {
    alive_.reset();
    next_.disarm();
    Connection::close();
  }

 private:
  struct Held {
    PayloadId payload;
    ChunkIndex chunk;
    BufferRef bytes;
    std::function<void()> on_sent;
  };

  /// Its node believes that the chunk has left, and says UpToDate in the end.
  void keep(std::function<void()> on_sent) {
    ++network_.changed_;
    network_.loop_.post([alive = std::weak_ptr<bool>(alive_), on_sent = std::move(on_sent)] {
      if (!alive.expired()) on_sent();
    });
  }

  void send_held() {
    Held next = std::move(held_.front());
    held_.pop_front();
    if (!held_.empty()) next_.arm(network_.loop_.now() + kDelay);
    Connection::send_chunk(next.payload, next.chunk, std::move(next.bytes), std::move(next.on_sent));
  }

  std::deque<Held> held_;
  Timer next_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();
};

/// To the origin, or to a parent, which hears nothing of what is changed here.
class HostileNetwork::ToOrigin final : public Connection {
 public:
  ToOrigin(HostileNetwork& network, std::unique_ptr<FrameConnection> inner)
      : Connection(network, std::move(inner)), complain_(network.loop_, [this] { complain(); }) {}

  void set_handlers(Handlers handlers) override {
    handlers.on_control = [this, on_control = std::move(handlers.on_control)](std::string body) {
      wire::Message message;
      if (message.ParseFromString(body) && message.has_announce()) {
        assignment_ = message.announce().assignment();
        starves_since_ = network_.loop_.now();
        if (network_.conduct_ == Conduct::kUnderstates) complain_.arm(starves_since_ + kComplainEvery);
      }
      return on_control(std::move(body));
    };
    Connection::set_handlers(std::move(handlers));
  }

  void send_control(std::string body) override {
    wire::Message message;
    if (message.ParseFromString(body) && message.has_heartbeat()) {
      wire::Heartbeat& beat = *message.mutable_heartbeat();
      for (std::uint32_t& missing : *beat.mutable_stripes_missing()) {
        if (network_.conduct_ == Conduct::kOverstates) missing = 0;
        if (network_.conduct_ == Conduct::kUnderstates) missing += (beat.chunks_total() - missing) / 8 * 7;
      }
      if (network_.conduct_ == Conduct::kOverstates) beat.set_chunks_verified(beat.chunks_total());
      if (network_.conduct_ == Conduct::kUnderstates) beat.set_chunks_verified(beat.chunks_verified() / 8);
      body = message.SerializeAsString();
    }
    if (message.has_installed() && network_.conduct_ == Conduct::kUnderstates) complain_.disarm();
    Connection::send_control(std::move(body));
  }

  void close() override {
    complain_.disarm();
    Connection::close();
  }

 private:
  /// That nothing comes from its parent, with which it stays.
  void complain() {
    complain_.arm(network_.loop_.now() + kComplainEvery);
    wire::Message message;
    wire::ParentFault& fault = *message.mutable_parent_fault();
    *fault.mutable_payload() = assignment_.payload();
    fault.set_epoch(assignment_.epoch());
    const std::uint32_t parent = assignment_.stripes(0).ancestors(0).peer_id();
    fault.set_parent_id(parent);
    fault.set_now_from_id(parent);
    fault.set_kind(wire::FAULT_KIND_STARVED);
    const Duration starving = network_.loop_.now() - starves_since_;
    fault.set_starving_ms(
        static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(starving).count()));
    Connection::send_control(message.SerializeAsString());
  }

  wire::Assignment assignment_;
  Instant starves_since_{};
  Timer complain_;
};

struct HostileNetwork::Said {
  std::unique_ptr<Attempt> attempt;
  std::unique_ptr<FrameConnection> connection;
};

HostileNetwork::HostileNetwork(UvLoop& loop, Conduct conduct, std::shared_ptr<TlsContext> tls, Rate line)
    : loop_(loop),
      conduct_(conduct),
      sockets_(loop, line, conduct == Conduct::kUnderstates ? kUnderstaterDownlink : line, {}, std::move(tls)) {}

HostileNetwork::~HostileNetwork() = default;

std::unique_ptr<Network::Attempt> HostileNetwork::dial(const Endpoint& to, OnDialled on_dialled) {
  return sockets_.dial(
      to, [this, on_dialled = std::move(on_dialled)](Result<std::unique_ptr<FrameConnection>> dialled) {
        if (!dialled.has_value()) return on_dialled(dialled.error());
        on_dialled(std::unique_ptr<FrameConnection>(std::make_unique<ToOrigin>(*this, std::move(*dialled))));
      });
}

Result<std::unique_ptr<Listener>> HostileNetwork::listen(const Endpoint& at, Listener::OnConnection on_connection) {
  return sockets_.listen(at, [this, on_connection = std::move(on_connection)](std::unique_ptr<FrameConnection> c) {
    on_connection(std::make_unique<ToChild>(*this, std::move(c)));
  });
}

Result<std::unique_ptr<Listener>> HostileNetwork::listen_locally(const std::string& path,
                                                                 Listener::OnConnection on_connection) {
  return sockets_.listen_locally(path, std::move(on_connection));
}

void HostileNetwork::say(const Endpoint& to, const wire::Message& message) {
  Said& said = *said_.emplace_back(std::make_unique<Said>());
  said.attempt = sockets_.dial(
      to, [this, &said, body = message.SerializeAsString()](Result<std::unique_ptr<FrameConnection>> dialled) {
        ASSERT_TRUE(dialled.has_value()) << dialled.error().message();
        said.connection = std::move(*dialled);
        said.connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                       .on_chunk = [](const ReceivedChunk&) {},
                                       .on_closed = [this](const Error&) { ++turned_away_; }});
        said.connection->send_control(body);
      });
}

HostileWorker::HostileWorker(const ClusterKeys& keys, const std::string& name, const std::string& state,
                             const std::string& origin, Conduct conduct, Rate line)
    : tls_(TlsContext::make(keys.worker(name))), network_(loop_, conduct, tls_, line) {
  DaemonConfig config;
  config.role = Role::kWorker;
  config.name = name;
  config.state = state;
  config.origin = Endpoint::parse(origin).value();
  config.uplink = config.downlink = line;
  NodeEnvironment environment{loop_, network_, files_,
                              [this](StoreOptions options) { return Store::open(loop_, files_, std::move(options)); },
                              [] { return std::uint64_t{0xf0}; }};
  environment.trust = std::make_shared<ClusterTrust>(tls_, TrustOptions{});
  auto opened = open_node(config, environment);
  EXPECT_TRUE(opened.has_value());
  node_ = std::move(*opened);
  thread_ = std::thread([this] { loop_.run(); });
}

HostileWorker::~HostileWorker() {
  loop_.post([this] { loop_.stop(); });
  thread_.join();
  node_.reset();
}

void HostileWorker::say(const std::string& to, const wire::Message& message) {
  loop_.post([this, at = Endpoint::parse(to).value(), message] { network_.say(at, message); });
}

}  // namespace weightcast
