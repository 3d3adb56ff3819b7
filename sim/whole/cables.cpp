#include "sim/whole/cables.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/digest/content_digest.h"
#include "sim/stand_ins.h"

namespace weightcast::sim {
namespace {

constexpr std::size_t kControlBytesSmall = 4096;

struct ControlBytes final : Cargo {
  explicit ControlBytes(std::string said) : body(std::move(said)) {}
  [[nodiscard]] std::string text() const override { return "control message"; }

  std::string body;
};

struct ChunkBytes final : Cargo {
  explicit ChunkBytes(BufferRef sent) : bytes(std::move(sent)) {}
  [[nodiscard]] std::string text() const override { return "chunk"; }

  BufferRef bytes;
};

}  // namespace

/// A process's end of a connection.
class Cables::Connection final : public FrameConnection {
 public:
  Connection(Cables& cables, NodeIndex host, ConnId conn, LinkIndex link)
      : cables_(cables), host_(host), peer_(cables.network_.other_end(link, host)), conn_(conn), link_(link) {
    cables_.hosts_[host_].connections[conn_] = this;
  }
  ~Connection() override {
    if (leave()) cables_.network_.abandon(now(), link_, host_);
  }

  void set_handlers(Handlers handlers) override { handlers_ = std::make_shared<const Handlers>(std::move(handlers)); }
  void set_receive_limits(const ReceiveLimits& limits) override { limits_ = limits; }
  void set_uplink_share(std::shared_ptr<Pacer::Share> /*share*/) override {}  // connections take turns, not members
  void keep_while_open(std::shared_ptr<void> token) override { token_ = std::move(token); }
  void send_control(std::string body) override {
    if (!open_) return;
    bytes_sent_ += body.size();
    const std::size_t bytes = body.size();
    // What is so large is padding, which measures a link: it has to take the link's time.
    const bool is_bulk = bytes > kControlBytesSmall;
    cables_.network_.send_control(now(), link_, host_, bytes, is_bulk, std::make_unique<ControlBytes>(std::move(body)));
  }
  void send_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void()> on_sent) override {
    if (!open_) return;
    waiting_.push_back({payload, chunk, std::move(bytes), std::move(on_sent)});
    if (waiting_.size() == 1) send_next();
  }
  void close() override {
    if (leave()) cables_.network_.close(now(), link_, host_);
  }
  void pause_reading() override {
    if (open_ && !cables_.ignore_pauses_) cables_.network_.pause(link_, host_);
  }
  void resume_reading() override {
    if (open_) cables_.network_.resume(now(), link_, host_);
  }
  [[nodiscard]] std::string peer_host() const override { return host_of(peer_); }
  [[nodiscard]] std::optional<PeerIdentity> peer() const override {
    return identity_of(peer_, peer_ == 0 ? "origin" : member_name(peer_));
  }
  [[nodiscard]] std::uint64_t bytes_received() const override { return bytes_received_; }
  [[nodiscard]] std::uint64_t bytes_sent() const override { return bytes_sent_; }

  // What the network says. Handlers are kept while they run, because they may destroy this.

  /// Errors: the reason to end the connection.
  Status handle_control(std::string body) {
    WC_TRY(take(body.size(), limits_.control_bytes_max));
    const auto handlers = handlers_;
    return handlers ? handlers->on_control(std::move(body)) : Status{};
  }
  Status handle_chunk(ReceivedChunk chunk) {
    WC_TRY(take(chunk.bytes->size(), limits_.chunk_bytes_max));
    if (const auto handlers = handlers_) handlers->on_chunk(std::move(chunk));
    return {};
  }
  void handle_chunk_sent() {
    const Chunk sent = std::move(waiting_.front());
    waiting_.pop_front();
    bytes_sent_ += sent.bytes->size();
    if (!waiting_.empty()) send_next();
    if (sent.on_sent) sent.on_sent();
  }
  void refuse(const Error& why) {
    cables_.network_.abandon(now(), link_, host_);
    handle_closed(why);
  }
  void handle_closed(const Error& why) {
    leave();
    if (const auto handlers = handlers_) handlers->on_closed(why);
  }

 private:
  struct Chunk {
    PayloadId payload{};
    ChunkIndex chunk{};
    BufferRef bytes;
    std::function<void()> on_sent;
  };

  [[nodiscard]] Instant now() const { return cables_.clock_.now(); }
  /// The network gets one chunk at a time, so that control messages need not wait for the others.
  void send_next() {
    const Chunk& next = waiting_.front();
    cables_.network_.send_chunk(now(), link_, host_, next.payload, next.chunk,
                                static_cast<std::uint32_t>(next.bytes->size()), false,
                                std::make_unique<ChunkBytes>(next.bytes));
  }
  /// No more handlers run. False if that was so before.
  bool leave() {
    if (!std::exchange(open_, false)) return false;
    cables_.hosts_[host_].connections.erase(conn_);
    // Later, because whoever gave the token may be in the middle of something.
    if (token_) cables_.clock_.at(now(), [token = std::move(token_)] {});
    return true;
  }
  Status take(std::size_t bytes, std::size_t bytes_max) {
    bytes_received_ += bytes;
    if (bytes <= bytes_max) return {};
    return fail(Errc::kTooLarge, Op::kReceive, "a frame exceeds the limit for this peer");
  }

  Cables& cables_;
  const NodeIndex host_, peer_;
  const ConnId conn_;
  const LinkIndex link_;
  bool open_ = true;
  std::deque<Chunk> waiting_;  // the first of them in the network
  ReceiveLimits limits_;
  std::shared_ptr<void> token_;  // until it is closed
  std::uint64_t bytes_sent_ = 0, bytes_received_ = 0;
  std::shared_ptr<const Handlers> handlers_;
};

/// A port that a process listens on.
class Cables::Acceptor final : public Listener {
 public:
  Acceptor(Cables& cables, NodeIndex host, Endpoint at, OnConnection on_connection)
      : cables_(cables), host_(host), at_(std::move(at)), on_connection_(std::move(on_connection)) {
    cables_.hosts_[host_].acceptor = this;
  }
  ~Acceptor() override { cables_.hosts_[host_].acceptor = nullptr; }
  [[nodiscard]] Endpoint endpoint() const override { return at_; }

  void accept(std::unique_ptr<Connection> connection) { on_connection_(std::move(connection)); }

 private:
  Cables& cables_;
  const NodeIndex host_;
  const Endpoint at_;
  const OnConnection on_connection_;
};

class Cables::Attempt final : public weightcast::Network::Attempt {
 public:
  Attempt(Cables& cables, NodeIndex host, const Endpoint& to, weightcast::Network::OnDialled on_dialled)
      : cables_(cables), host_(host), to_(to), on_dialled_(std::move(on_dialled)) {
    const NodeIndex target = node_at(to.host);
    WC_CHECK(target < cables_.hosts_.size());
    conn_ = ConnId{++cables_.hosts_[host_].conns};
    cables_.hosts_[host_].attempts[conn_] = this;
    link_ = cables_.network_.dial(cables_.clock_.now(), host_, conn_, target);
  }
  ~Attempt() override {
    if (leave()) cables_.network_.abandon(cables_.clock_.now(), link_, host_);
  }

  void handle_connected() {
    leave();
    finish(std::make_unique<Connection>(cables_, host_, conn_, link_));
  }
  void handle_closed(const Error& why) {
    leave();
    finish(fail(why.code, why.op, "to " + to_.to_string() + ": " + why.detail));
  }

 private:
  /// The network has no more to say to it. False if that was so before.
  bool leave() { return cables_.hosts_[host_].attempts.erase(conn_) > 0; }
  void finish(Result<std::unique_ptr<FrameConnection>> result) {
    const auto call = std::move(on_dialled_);
    call(std::move(result));
  }

  Cables& cables_;
  const NodeIndex host_;
  const Endpoint to_;
  weightcast::Network::OnDialled on_dialled_;
  ConnId conn_{};
  LinkIndex link_ = kNoIndex;
};

class Cables::HostNetwork final : public weightcast::Network {
 public:
  HostNetwork(Cables& cables, NodeIndex host) : cables_(cables), host_(host) { cables_.network_.handle_restart(host_); }
  ~HostNetwork() override {
    // A host that has lost power has nobody to tell.
    if (!cables_.network_.links_of(host_).empty()) cables_.network_.drop_node(cables_.clock_.now(), host_);
  }

  std::unique_ptr<weightcast::Network::Attempt> dial(const Endpoint& to, OnDialled on_dialled) override {
    return std::make_unique<Cables::Attempt>(cables_, host_, to, std::move(on_dialled));
  }
  Result<std::unique_ptr<Listener>> listen(const Endpoint& at, Listener::OnConnection on_connection) override {
    return std::make_unique<Acceptor>(cables_, host_, at, std::move(on_connection));
  }
  Result<std::unique_ptr<Listener>> listen_locally(const std::string& path, Listener::OnConnection) override {
    return std::make_unique<LocalSocket>(path);
  }

 private:
  /// Nobody connects: the world calls the service itself.
  struct LocalSocket final : Listener {
    explicit LocalSocket(const std::string& path) : at{path, 0} {}
    [[nodiscard]] Endpoint endpoint() const override { return at; }

    const Endpoint at;
  };

  Cables& cables_;
  const NodeIndex host_;
};

Cables::Cables(SimClock& clock, std::uint64_t seed, const NetworkOptions& options, std::uint32_t hosts)
    : clock_(clock),
      random_(seed),
      hosts_(hosts),
      network_(options, hosts, random_, clock.share([this](const Event& event) { handle(event); }), *this) {}

std::unique_ptr<weightcast::Network> Cables::attach(NodeIndex host) {
  return std::make_unique<HostNetwork>(*this, host);
}

void Cables::handle(const Event& event) {
  if (!network_.hold(clock_.now(), event)) network_.handle(clock_.now(), event);
}

ConnId Cables::on_accept(NodeIndex host, NodeIndex /*dialler*/, LinkIndex link) {
  const ConnId conn{++hosts_[host].conns};
  hosts_[host].acceptor->accept(std::make_unique<Connection>(*this, host, conn, link));
  return conn;
}

void Cables::on_connected(NodeIndex host, ConnId conn) {
  if (const auto found = hosts_[host].attempts.find(conn); found != hosts_[host].attempts.end()) {
    found->second->handle_connected();
  }
}

void Cables::on_closed(NodeIndex host, ConnId conn, const Error& why) {
  if (const auto found = hosts_[host].attempts.find(conn); found != hosts_[host].attempts.end()) {
    found->second->handle_closed(why);
  } else if (Connection* const closed = connection(host, conn)) {
    closed->handle_closed(why);
  }
}

void Cables::on_control(NodeIndex host, ConnId conn, NodeIndex /*from*/, Cargo& cargo) {
  Connection* const to = connection(host, conn);
  if (to != nullptr) note(host, conn, to->handle_control(std::move(static_cast<ControlBytes&>(cargo).body)));
}

void Cables::note(NodeIndex host, ConnId conn, const Status& taken) {
  if (taken.has_value()) return;
  if (Connection* const to = connection(host, conn)) to->refuse(taken.error());
}

void Cables::on_chunk(NodeIndex host, ConnId conn, PayloadId payload, ChunkIndex chunk, bool damaged, Cargo* cargo) {
  Connection* const to = connection(host, conn);
  if (to == nullptr) return;
  BufferRef bytes = static_cast<ChunkBytes&>(*cargo).bytes;
  if (damaged && bytes->size() > 0) {
    auto wrong = std::make_shared<Buffer>(bytes->capacity());
    std::ranges::copy(bytes->bytes(), wrong->data());
    wrong->set_size(bytes->size());
    wrong->data()[random_.below(wrong->size())] ^= std::byte{1};
    bytes = std::move(wrong);
  }
  const ContentDigest digest = content_digest_of(bytes->bytes());
  note(host, conn, to->handle_chunk({payload, chunk, std::move(bytes), digest}));
}

void Cables::on_chunk_sent(NodeIndex host, ConnId conn) {
  if (Connection* const from = connection(host, conn)) from->handle_chunk_sent();
}

Cables::Connection* Cables::connection(NodeIndex host, ConnId conn) const {
  const auto found = hosts_[host].connections.find(conn);
  return found == hosts_[host].connections.end() ? nullptr : found->second;
}

}  // namespace weightcast::sim
