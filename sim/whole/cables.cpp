#include "sim/whole/cables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "base/digest/content_digest.h"
#include "sim/stand_ins.h"

namespace weightcast::sim {
namespace {

// What a connection holds of what its receiver has not read: socket buffers at both ends.
constexpr std::size_t kWindowBytes = 64 * kKiB;
constexpr std::size_t kHeaderBytes = 40;
constexpr Duration kConnectTimeout = std::chrono::seconds(5);
constexpr Rate kFastest{1e9};
// As transport/io/net/socket.cpp sets keep-alive.
constexpr Duration kProbedInVain = std::chrono::seconds(60);

struct Frame {
  enum class Kind : std::uint8_t { kControl, kChunk, kEnd };
  Kind kind = Kind::kEnd;
  std::string control;
  PayloadId payload{};
  ChunkIndex chunk{};
  BufferRef bytes;
  std::function<void()> on_sent;

  [[nodiscard]] std::size_t size() const { return kHeaderBytes + control.size() + (bytes ? bytes->size() : 0); }
};

}  // namespace

/// One connection; each side is a process on its host. Shared by the two ends and by what is on its way.
class Cables::Wire : public std::enable_shared_from_this<Wire> {
 public:
  struct Side {
    HostIndex host = 0;
    HostLoop* loop = nullptr;
    Connection* connection = nullptr;  // null once it is closed, or its process has ended
    std::deque<Frame> controls, chunks;
    std::size_t in_flight_bytes = 0;  // sent, and not read at the other side
    bool closing = false;             // ends when all is sent
    bool ended = false;               // nothing more is sent
    bool paused = false;
    std::deque<Frame> arrived;
    ReceiveLimits limits;
    std::shared_ptr<void> token;  // until it is closed
    Instant last_arrival{};
    std::uint64_t bytes_sent = 0, bytes_received = 0;
  };

  Wire(Cables& cables, HostIndex dialler, HostIndex acceptor) : cables_(cables) {
    sides_[0].host = dialler;
    sides_[1].host = acceptor;
  }

  [[nodiscard]] Side& side(unsigned which) { return sides_[which]; }
  [[nodiscard]] bool between(HostIndex a, HostIndex b) const {
    return (sides_[0].host == a && sides_[1].host == b) || (sides_[0].host == b && sides_[1].host == a);
  }

  void send(unsigned from, Frame frame) {
    Side& side = sides_[from];
    if (side.ended || side.closing || broken_) return;
    (frame.kind == Frame::Kind::kChunk ? side.chunks : side.controls).push_back(std::move(frame));
    pump(from);
  }

  void pause(unsigned which) { sides_[which].paused = !cables_.ignore_pauses_; }
  void resume(unsigned which) {
    sides_[which].paused = false;
    drain_soon(which);
  }

  /// What is queued but for chunks still goes; then the other side hears of the end.
  void close(unsigned which) {
    Side& side = sides_[which];
    side.connection = nullptr;
    let_go(side);
    side.chunks.clear();
    side.arrived.clear();
    side.closing = true;
    pump(which);
  }

  /// As if the process were gone: what is queued is lost.
  void abandon(unsigned which) {
    Side& side = sides_[which];
    side.controls.clear();
    close(which);
  }

  /// Both sides that are still there hear of it.
  void reset() {
    if (std::exchange(broken_, true)) return;
    for (const unsigned which : {0u, 1u}) {
      sides_[which].arrived.clear();
      later(which, cables_.clock_.now(),
            [this, which] { end(which, fail(Errc::kIo, Op::kReceive, "the connection was reset")); });
    }
  }

  /// That host has gone dark: the other side hears nothing, until its kernel has probed in vain.
  void lose(unsigned which) {
    later(1 - which, cables_.clock_.now() + kProbedInVain,
          [this, which] { end(1 - which, fail(Errc::kTimedOut, Op::kReceive, "the peer's host does not answer")); });
    sides_[which].connection = nullptr;
    let_go(sides_[which]);
    sides_[which].ended = true;
    sides_[which].controls.clear();
    sides_[which].chunks.clear();
    sides_[which].arrived.clear();
  }

  /// This side hears that the connection is at its end, and why.
  void end(unsigned which, const Error& why);
  /// The same because of what the other side sent; that hears of it, too.
  void refuse(unsigned which, const Error& why) {
    sides_[which].controls.clear();
    sides_[which].chunks.clear();
    if (sides_[which].connection != nullptr) transmit(which, Frame{});
    end(which, why);
  }
  void drain(unsigned which);

 private:
  /// Later, because whoever gave the token may be in the middle of something.
  void let_go(Side& side) {
    if (side.token) cables_.clock_.at(cables_.clock_.now(), [token = std::move(side.token)] {});
  }

  /// For what happens at one side: not once its process has ended.
  void later(unsigned which, Instant when, std::function<void()> task) {
    cables_.clock_.at(when, [self = shared_from_this(), which, task = std::move(task)] {
      if (self->sides_[which].connection != nullptr) task();
    });
  }

  void drain_soon(unsigned which) {
    later(which, cables_.clock_.now(), [this, which] { drain(which); });
  }

  void pump(unsigned from) {
    Side& side = sides_[from];
    while (!side.ended && !broken_) {
      Frame frame;
      if (!side.controls.empty()) {
        frame = std::move(side.controls.front());
        side.controls.pop_front();
      } else if (side.closing) {
        side.ended = true;
      } else if (!side.chunks.empty() && side.in_flight_bytes < kWindowBytes) {
        frame = std::move(side.chunks.front());
        side.chunks.pop_front();
      } else {
        return;
      }
      transmit(from, std::move(frame));
    }
  }

  void transmit(unsigned from, Frame frame) {
    Side& side = sides_[from];
    Host& host = cables_.hosts_[side.host];
    if (host.dark || (host.silent && frame.kind != Frame::Kind::kEnd)) return;
    const Instant now = cables_.clock_.now();
    const Rate rate = host.uplink.limited() ? host.uplink : kFastest;
    host.uplink_free = std::max(now, host.uplink_free) + from_seconds(double(frame.size()) / rate.bytes_per_s);
    const Instant sent = host.uplink_free;
    side.in_flight_bytes += frame.size();
    side.bytes_sent += frame.size();
    if (frame.on_sent) later(from, sent, std::move(frame.on_sent));
    if (frame.bytes && cables_.random_.chance(host.corruption)) {
      auto wrong = std::make_shared<Buffer>(frame.bytes->capacity());
      std::ranges::copy(frame.bytes->bytes(), wrong->data());
      wrong->set_size(frame.bytes->size());
      wrong->data()[cables_.random_.below(wrong->size())] ^= std::byte{1};
      frame.bytes = std::move(wrong);
    }
    side.last_arrival = std::max(side.last_arrival, sent + cables_.latency(sides_[0].host, sides_[1].host));
    cables_.clock_.at(side.last_arrival,
                      [self = shared_from_this(), to = 1 - from, frame = std::move(frame)]() mutable {
                        if (self->broken_ || self->sides_[to].connection == nullptr)
                          return self->handle_unheard(to, frame);
                        self->sides_[to].arrived.push_back(std::move(frame));
                        self->drain(to);
                      });
  }

  // A host that is up and knows nothing of the connection says so.
  void handle_unheard(unsigned to, const Frame& frame) {
    if (broken_ || frame.kind == Frame::Kind::kEnd || cables_.hosts_[sides_[to].host].dark) return;
    reset();
  }

  Cables& cables_;
  std::array<Side, 2> sides_;
  bool broken_ = false;
};

/// A process's end of a wire.
class Cables::Connection final : public FrameConnection {
 public:
  Connection(WireRef wire, unsigned which, HostLoop& loop, HostIndex peer)
      : wire_(std::move(wire)), which_(which), loop_(loop), peer_(peer) {
    side().loop = &loop;
    side().connection = this;
  }
  ~Connection() override {
    if (side().connection == this) wire_->abandon(which_);
  }

  void set_handlers(Handlers handlers) override { handlers_ = std::make_shared<const Handlers>(std::move(handlers)); }
  void set_receive_limits(const ReceiveLimits& limits) override { side().limits = limits; }
  void set_uplink_share(std::shared_ptr<Pacer::Share> /*share*/) override {}  // a host's cable has no turns
  void keep_while_open(std::shared_ptr<void> token) override { side().token = std::move(token); }
  void send_control(std::string body) override {
    if (side().connection != this) return;
    Frame frame;
    frame.kind = Frame::Kind::kControl;
    frame.control = std::move(body);
    wire_->send(which_, std::move(frame));
  }
  void send_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void()> on_sent) override {
    if (side().connection != this) return;
    wire_->send(which_, {Frame::Kind::kChunk, {}, payload, chunk, std::move(bytes), std::move(on_sent)});
  }
  void close() override {
    if (side().connection == this) wire_->close(which_);
  }
  void pause_reading() override { wire_->pause(which_); }
  void resume_reading() override { wire_->resume(which_); }
  [[nodiscard]] std::string peer_host() const override { return address_of(peer_); }
  [[nodiscard]] std::optional<PeerIdentity> peer() const override { return identity_of(peer_, Cables::name_of(peer_)); }
  [[nodiscard]] std::uint64_t bytes_received() const override { return wire_->side(which_).bytes_received; }
  [[nodiscard]] std::uint64_t bytes_sent() const override { return wire_->side(which_).bytes_sent; }

  /// Kept while they run, because they may destroy this.
  [[nodiscard]] std::shared_ptr<const Handlers> handlers() const { return handlers_; }

 private:
  [[nodiscard]] Wire::Side& side() const { return wire_->side(which_); }

  WireRef wire_;
  const unsigned which_;
  HostLoop& loop_;
  const HostIndex peer_;
  std::shared_ptr<const Handlers> handlers_;
};

void Cables::Wire::end(unsigned which, const Error& why) {
  Side& side = sides_[which];
  if (side.connection == nullptr) return;
  const auto handlers = side.connection->handlers();
  side.connection = nullptr;
  side.ended = true;
  side.arrived.clear();
  let_go(side);
  if (handlers) handlers->on_closed(why);
}

void Cables::Wire::drain(unsigned which) {
  Side& side = sides_[which];
  Side& other = sides_[1 - which];
  const Instant open = cables_.open_at(side.host, other.host);
  if (open > cables_.clock_.now()) return later(which, open, [this, which] { drain(which); });
  const WireRef keep = shared_from_this();
  while (side.connection != nullptr && !side.paused && !side.arrived.empty()) {
    const Frame frame = std::move(side.arrived.front());
    side.arrived.pop_front();
    side.bytes_received += frame.size();
    other.in_flight_bytes -= std::min(other.in_flight_bytes, frame.size());
    const auto handlers = side.connection->handlers();
    if (!handlers) continue;
    const bool fits = frame.control.size() <= side.limits.control_bytes_max &&
                      (!frame.bytes || frame.bytes->size() <= side.limits.chunk_bytes_max);
    if (!fits) {
      return refuse(which, fail(Errc::kTooLarge, Op::kReceive, "a frame exceeds the limit for this peer"));
    }
    switch (frame.kind) {
      case Frame::Kind::kControl:
        if (Status taken = handlers->on_control(frame.control); !taken.has_value()) {
          return refuse(which, taken.error());
        }
        break;
      case Frame::Kind::kChunk:
        handlers->on_chunk({frame.payload, frame.chunk, frame.bytes, content_digest_of(frame.bytes->bytes())});
        break;
      case Frame::Kind::kEnd: return end(which, fail(Errc::kClosed, Op::kReceive, "the peer ended the connection"));
    }
  }
  pump(1 - which);
}

/// A port that a process listens on.
class Cables::Acceptor final : public Listener {
 public:
  Acceptor(Cables& cables, HostIndex host, HostLoop& loop, Endpoint at, OnConnection on_connection)
      : cables_(cables), host_(host), loop_(loop), at_(std::move(at)), on_connection_(std::move(on_connection)) {
    cables_.hosts_[host_].acceptors[at_.port] = this;
  }
  ~Acceptor() override { cables_.hosts_[host_].acceptors.erase(at_.port); }
  [[nodiscard]] Endpoint endpoint() const override { return at_; }

  void accept(const WireRef& wire, HostIndex dialler) {
    on_connection_(std::make_unique<Connection>(wire, 1, loop_, dialler));
  }

 private:
  Cables& cables_;
  const HostIndex host_;
  HostLoop& loop_;
  const Endpoint at_;
  const OnConnection on_connection_;
};

class Cables::Attempt final : public Network::Attempt {
 public:
  Attempt(Cables& cables, HostIndex from, HostLoop& loop, const Endpoint& to, Network::OnDialled on_dialled)
      : cables_(cables), from_(from), loop_(loop), to_(to), on_dialled_(std::move(on_dialled)) {
    const Instant now = loop.now();
    give_up_at_ = now + kConnectTimeout;
    for (HostIndex host = 0; host < cables.hosts_.size(); ++host) {
      if (address_of(host) == to.host) host_ = host;
    }
    const Duration latency = cables_.latency(from_, host_.value_or(from_));
    at(now + latency, [this, latency] { knock(latency); });
  }

 private:
  void at(Instant when, std::function<void()> task) {
    loop_.at(when, [alive = std::weak_ptr(alive_), task = std::move(task)] {
      if (!alive.expired()) task();
    });
  }

  void knock(Duration latency) {
    const Instant open = host_ ? cables_.open_at(from_, *host_) : give_up_at_;
    if (open >= give_up_at_ || (host_ && cables_.hosts_[*host_].dark)) {
      return at(give_up_at_,
                [this] { finish(fail(Errc::kTimedOut, Op::kConnect, "to " + to_.to_string() + ": timed out")); });
    }
    if (open > loop_.now()) return at(open + latency, [this, latency] { knock(latency); });
    const auto& acceptors = cables_.hosts_[*host_].acceptors;
    const auto found = acceptors.find(to_.port);
    if (found == acceptors.end()) {
      return at(loop_.now() + latency,
                [this] { finish(fail(Errc::kIo, Op::kConnect, "to " + to_.to_string() + ": connection refused")); });
    }
    wire_ = std::make_shared<Wire>(cables_, from_, *host_);
    cables_.wires_.push_back(wire_);
    // The dialler's end exists from here on, so that what the other side sends at once waits for it.
    connection_ = std::make_unique<Connection>(wire_, 0, loop_, *host_);
    wire_->side(0).paused = true;
    found->second->accept(wire_, from_);
    at(loop_.now() + latency, [this] {
      wire_->resume(0);
      finish(std::move(connection_));
    });
  }

  void finish(Result<std::unique_ptr<FrameConnection>> result) {
    const auto call = std::move(on_dialled_);
    call(std::move(result));
  }

  Cables& cables_;
  const HostIndex from_;
  HostLoop& loop_;
  const Endpoint to_;
  Network::OnDialled on_dialled_;
  std::optional<HostIndex> host_;
  Instant give_up_at_{};
  WireRef wire_;
  std::unique_ptr<FrameConnection> connection_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // expires when it is dropped
};

class Cables::HostNetwork final : public Network {
 public:
  HostNetwork(Cables& cables, HostIndex host, HostLoop& loop) : cables_(cables), host_(host), loop_(loop) {
    cables_.hosts_[host_].loop = &loop;
  }
  ~HostNetwork() override { cables_.hosts_[host_].loop = nullptr; }

  std::unique_ptr<Network::Attempt> dial(const Endpoint& to, OnDialled on_dialled) override {
    return std::make_unique<Cables::Attempt>(cables_, host_, loop_, to, std::move(on_dialled));
  }
  Result<std::unique_ptr<Listener>> listen(const Endpoint& at, Listener::OnConnection on_connection) override {
    return std::make_unique<Acceptor>(cables_, host_, loop_, at, std::move(on_connection));
  }
  Result<std::unique_ptr<Listener>> listen_locally(const std::string& path, Listener::OnConnection) override {
    // Nobody connects: the world calls the service itself.
    return std::make_unique<Acceptor>(cables_, host_, loop_, Endpoint{path, 0}, [](const auto&) {});
  }

 private:
  Cables& cables_;
  const HostIndex host_;
  HostLoop& loop_;
};

Cables::Cables(SimLoop& clock, std::uint64_t seed, std::uint32_t hosts) : clock_(clock), random_(seed), hosts_(hosts) {}

std::string Cables::name_of(HostIndex host) { return host == 0 ? "origin" : fmt::format("w{}", host); }

std::string Cables::address_of(HostIndex host) { return fmt::format("10.0.0.{}", host + 1); }

std::unique_ptr<Network> Cables::attach(HostIndex host, HostLoop& loop) {
  hosts_[host].silent = false;
  return std::make_unique<HostNetwork>(*this, host, loop);
}

void Cables::set_uplink(HostIndex host, Rate rate) {
  Host& at = hosts_[host];
  const Instant now = clock_.now();
  const auto rate_of = [](Rate uplink) { return (uplink.limited() ? uplink : kFastest).bytes_per_s; };
  // Frames that are on their way arrive when they were to: those of new connections do not wait for them.
  if (at.uplink_free > now) {
    at.uplink_free = now + from_seconds(to_seconds(at.uplink_free - now) * rate_of(at.uplink) / rate_of(rate));
  }
  at.uplink = rate;
}

void Cables::partition(HostIndex a, HostIndex b, Instant until) {
  Instant& open = partitions_[std::minmax(a, b)];
  open = std::max(open, until);
}

void Cables::reset(HostIndex a, HostIndex b) {
  std::erase_if(wires_, [](const auto& wire) { return wire.expired(); });
  for (const auto& weak : std::vector(wires_)) {
    if (const WireRef wire = weak.lock(); wire && wire->between(a, b)) wire->reset();
  }
}

void Cables::power_cut(HostIndex host) {
  hosts_[host].dark = true;
  for (const auto& weak : wires_) {
    const WireRef wire = weak.lock();
    if (!wire) continue;
    for (const unsigned which : {0u, 1u}) {
      if (wire->side(which).host == host) wire->lose(which);
    }
  }
}

void Cables::power_on(HostIndex host) { hosts_[host].dark = false; }

Duration Cables::latency(HostIndex a, HostIndex b) {
  const Duration least = std::max(hosts_[a].latency, hosts_[b].latency);
  return least + random_.duration(Duration(0), least / 4);
}

Instant Cables::open_at(HostIndex a, HostIndex b) const {
  const auto found = partitions_.find(std::minmax(a, b));
  return found == partitions_.end() ? Instant{} : found->second;
}

}  // namespace weightcast::sim
