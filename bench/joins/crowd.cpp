#include "bench/joins/crowd.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <utility>

#include "bench/fleet/interrupt.h"
#include "bench/times.h"
#include "proto/limits.h"
#include "proto/wire.pb.h"
#include "transport/security/authority.h"

namespace weightcast::bench {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr Duration kTurn = std::chrono::milliseconds(20);

}  // namespace

class Crowd::Worker {
 public:
  Worker(Crowd& crowd, NodeKeys keys)
      : crowd_(crowd),
        name_(keys.info.name),
        network_(crowd.loop_, Rate{}, Rate{}, {}, TlsContext::make(std::move(keys))),
        heartbeat_(crowd.loop_, [this] { beat(); }) {}

  /// Others find out here whether they could dial it.
  Status listen() {
    WC_ASSIGN(listener_, network_.listen({"127.0.0.1", 0}, [this](std::unique_ptr<FrameConnection> connection) {
      const auto kept = accepted_.insert(accepted_.end(), std::move(connection));
      (*kept)->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                             .on_chunk = [](const ReceivedChunk&) {},
                             .on_closed = [this, kept](const Error&) { accepted_.erase(kept); }});
    }));
    return {};
  }

  void dial(const Endpoint& origin) {
    attempt_ = network_.dial(origin, [this](Result<std::unique_ptr<FrameConnection>> dialled) {
      if (!dialled.has_value()) return fail_with(dialled.error().message());
      connection_ = std::move(*dialled);
      connection_->set_handlers({.on_control = [this](const std::string& body) { return handle(body); },
                                 .on_chunk = [](const ReceivedChunk&) {},
                                 .on_closed = [this](const Error& why) { fail_with(why.message()); }});
      wire::Message message;
      message.mutable_join()->set_protocol(kProtocolVersion);
      message.mutable_join()->set_name(name_);
      message.mutable_join()->set_incarnation(1);
      message.mutable_join()->mutable_listen()->set_port(listener_->endpoint().port);
      connection_->send_control(message.SerializeAsString());
    });
  }

  void leave() {
    heartbeat_.disarm();
    attempt_.reset();
    if (connection_) connection_->close();
    connection_.reset();
  }

 private:
  Status handle(const std::string& body) {
    wire::Message message;
    if (!message.ParseFromString(body)) return fail(Errc::kCorrupt, Op::kParse, "a message of the origin");
    if (message.has_bye()) fail_with(message.bye().reason());
    if (!message.has_joined()) return {};
    ++crowd_.joined_;
    every_ = std::chrono::milliseconds(message.joined().heartbeat_ms());
    beat();
    return {};
  }

  void beat() {
    wire::Message message;
    message.mutable_heartbeat();
    connection_->send_control(message.SerializeAsString());
    heartbeat_.arm(crowd_.loop_.now() + every_);
  }

  void fail_with(const std::string& why) {
    heartbeat_.disarm();
    if (crowd_.failure_.empty()) crowd_.failure_ = name_ + ": " + why;
  }

  Crowd& crowd_;
  const std::string name_;
  SocketNetwork network_;
  std::unique_ptr<Listener> listener_;
  std::list<std::unique_ptr<FrameConnection>> accepted_;
  std::unique_ptr<weightcast::Network::Attempt> attempt_;
  std::unique_ptr<FrameConnection> connection_;
  Duration every_{};
  Timer heartbeat_;
};

Result<std::unique_ptr<Crowd>> Crowd::make(const std::filesystem::path& keys, std::size_t workers) {
  std::unique_ptr<Crowd> crowd(new Crowd(workers));
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(Authority authority, Authority::open(keys, now));
  for (std::size_t i = 0; i < workers; ++i) {
    WC_ASSIGN(const std::filesystem::path file, authority.issue(fmt::format("c{}", i), 1, false, now));
    WC_ASSIGN(NodeKeys of_worker, read_node_keys(file, now));
    WC_TRY(crowd->workers_.emplace_back(std::make_unique<Worker>(*crowd, std::move(of_worker)))->listen());
  }
  return crowd;
}

Crowd::Crowd(std::size_t workers) : expected_(workers) {}

Crowd::~Crowd() = default;

Result<Crowd::Joined> Crowd::join(const Endpoint& origin) {
  joined_ = 0;
  failure_.clear();
  const double cpu_before_s = process_cpu_s();
  const Instant start = loop_.now();
  for (const auto& worker : workers_) worker->dial(origin);
  while (joined_ < expected_) {
    WC_TRY(check_interrupt());
    if (!failure_.empty()) return fail(Errc::kNotAllowed, Op::kJoin, failure_);
    if (loop_.now() - start > kPatience) {
      return fail(Errc::kTimedOut, Op::kJoin, fmt::format("{} of {} workers are in", joined_, expected_));
    }
    loop_.run_until(loop_.now() + kTurn);
  }
  return Joined{to_seconds(loop_.now() - start), process_cpu_s() - cpu_before_s};
}

Status Crowd::idle(Duration duration) {
  const Instant end = loop_.now() + duration;
  while (loop_.now() < end) {
    WC_TRY(check_interrupt());
    loop_.run_until(std::min(end, loop_.now() + kTurn));
  }
  if (!failure_.empty()) return fail(Errc::kClosed, Op::kReceive, failure_);
  return {};
}

void Crowd::leave() {
  for (const auto& worker : workers_) worker->leave();
  // Until the goodbyes have left.
  const Instant end = loop_.now() + std::chrono::seconds(1);
  while (loop_.now() < end) loop_.run_until(end);
}

}  // namespace weightcast::bench
