#include "transport/core/worker/worker_core.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/core/manifest/payload_wire.h"
#include "transport/core/peer_check.h"

namespace weightcast {
namespace {

// After the disk refused to write down which run this worker follows.
constexpr Duration kRunRetryAfter = std::chrono::seconds(10);

}  // namespace

WorkerCore::WorkerCore(WorkerConfig config)
    : Core(config.timeouts, config.protocols),
      config_(std::move(config)),
      links_(conn_ids_, actions_),
      held_(config_, holdings_, uploads_),
      origin_(config_, conn_ids_, actions_),
      intake_(config_, origin_, links_, held_, uploads_, actions_),
      dials_(conn_ids_, origin_, actions_),
      run_(config_.run) {
  links_.set_origin(config_.origin_host, config_.origin_port);
}

void WorkerCore::start(Instant now) {
  held_.handle_restored();
  origin_.start(now);
}

void WorkerCore::stop(std::string_view reason) {
  wire::Message message;
  message.mutable_leave()->set_reason(std::string(reason));
  origin_.send(std::move(message));
  for (const auto& [payload, holding] : holdings_) uploads_.withdraw(payload, reason);
  intake_.stop();
  links_.close_unless([](ConnId) { return false; });
  origin_.stop();
}

void WorkerCore::handle_revocations(Instant now, std::uint64_t number) {
  origin_.set_revocations(number);
  intake_.handle_revocations(now);
}

// ---- connections

void WorkerCore::handle_connected(Instant now, ConnId conn, const std::optional<PeerIdentity>& peer) {
  if (const Status expected = check_dialled(conn, peer); !expected.has_value()) {
    actions_.push(action::Refused{conn, Refusal::kIdentity, expected.error()});
    actions_.push(action::Close{conn});
    return handle_closed(now, conn, expected.error());
  }
  if (origin_.is(conn)) return join(now);
  if (dials_.is_probe(conn)) {
    dials_.handle_probe_made(conn);
    return actions_.push(action::Close{conn});
  }
  if (!links_.is_link(conn)) return;
  dials_.handle_made(links_.peer_of(conn).id);
  links_.handle_connected(now, conn);
  say_hello(conn);
  intake_.handle_open(now, conn);
}

Status WorkerCore::check_dialled(ConnId conn, const std::optional<PeerIdentity>& peer) const {
  if (!peer) return {};
  if (origin_.is(conn) || links_.leads_to_origin(conn)) {
    if (peer->role == Role::kOrigin) return {};
    return fail(Errc::kNotAllowed, Op::kConnect,
                fmt::format("{}:{} is worker {}, not the origin; check --origin", config_.origin_host,
                            config_.origin_port, peer->name));
  }
  const bool is_link = links_.is_link(conn);
  const std::string name = is_link ? links_.name_of(conn) : dials_.name_of(conn);
  // An older origin does not say whose address it has probed.
  if (!is_link && name.empty()) return {};
  return check_speaks_as(*peer, Role::kWorker, name, "a parent");
}

void WorkerCore::join(Instant now) {
  wire::Join join;
  intake_.describe(join);
  join.set_run_id(run_.value);
  for (const PayloadId payload : held_.complete(kHeldMax)) payload_to_wire(payload, *join.add_held());
  origin_.handle_connected(now, std::move(join));
}

void WorkerCore::say_hello(ConnId conn) {
  wire::Message message;
  message.mutable_hello()->set_protocol(config_.protocols.lowest);
  message.mutable_hello()->set_protocol_max(config_.protocols.highest);
  message.mutable_hello()->set_peer_id(id().value);
  message.mutable_hello()->set_name(config_.name);
  message.mutable_hello()->set_model_id(config_.model_id);
  actions_.push(action::Send{conn, std::move(message)});
}

void WorkerCore::handle_rate_probe(Instant now, const wire::RateProbe& probe) {
  wire::Message message;
  wire::RateProbed& answer = *message.mutable_rate_probed();
  answer.set_probe(probe.probe());
  if (probe.answer_bytes() == 0) {
    if (std::exchange(burst_probe_, probe.probe()) != probe.probe()) burst_ = BurstMeter();
    const auto measured = burst_.handle(now, probe.padding().size(), probe.bytes_left());
    if (!measured) return;
    answer.set_bytes_per_s(measured->rate.bytes_per_s);
    answer.set_seconds(to_seconds(measured->lasted));
    return origin_.send(std::move(message));
  }
  for (std::uint32_t left = std::min(probe.answer_bytes(), kBurstBytesMax); left > 0;) {
    const std::uint32_t bytes = std::min(left, kBurstMessageBytes);
    left -= bytes;
    answer.set_padding(std::string(bytes, '\0'));
    answer.set_bytes_left(left);
    origin_.send(message);
  }
}

void WorkerCore::handle_closed(Instant now, ConnId conn, const Error& why) {
  forget(conn);
  if (origin_.is(conn)) return origin_.handle_closed(now, why);
  if (dials_.is_probe(conn)) return dials_.handle_probe_failed(conn, why);
  if (!links_.is_link(conn)) return;
  const bool was_made = links_.is_open(conn);
  if (!was_made && !links_.leads_to_origin(conn)) dials_.handle_failed(links_.peer_of(conn), why);
  links_.handle_closed(conn);
  intake_.handle_closed(now, conn, was_made);
}

// ---- messages

Speaker WorkerCore::speaker_on(ConnId conn) const {
  if (origin_.is(conn)) return Speaker::kOrigin;
  return links_.is_link(conn) ? Speaker::kParent : Core::speaker_on(conn);
}

void WorkerCore::handle_message(Instant now, ConnId conn, const wire::Message& message) {
  if (origin_.is(conn)) return handle_origin_message(now, message);
  if (links_.is_link(conn)) {
    if (message.has_welcome()) return take_protocol(conn, message.welcome().protocol());
    return intake_.handle_message(now, conn, message);
  }
  if (!admit_message(now, conn)) return;
  if (message.has_join()) {
    return refuse(conn,
                  fail(Errc::kNotAllowed, Op::kJoin, "this node is a worker; give --origin the address of the origin"));
  }
  handle_child_message(now, conn, message, "Hello");
}

// Of releases before version 8 the word is absent. One that this node has not offered counts for nothing.
void WorkerCore::take_protocol(ConnId conn, std::uint32_t protocol) {
  if (config_.protocols.contains(protocol)) actions_.protocols().agree(conn, protocol);
}

void WorkerCore::handle_origin_message(Instant now, const wire::Message& message) {
  using Kind = wire::Message::KindCase;
  origin_.handle_heard(now);
  switch (message.kind_case()) {
    case Kind::kJoined:
      intake_.handle_rejoined();
      dials_.handle_joined();
      handle_run(RunId{message.joined().run_id()});
      take_protocol(origin_.conn(), message.joined().protocol());
      return origin_.handle_joined(now, message.joined());
    case Kind::kProbed: return dials_.handle_undialled(message.probed().reached() ? "" : message.probed().reason());
    case Kind::kNewRun: return handle_new_run(RunId{message.new_run().run_id()});
    case Kind::kAnnounce: return intake_.handle_announce(now, message.announce());
    case Kind::kAssignment: return intake_.handle_assignment(now, message.assignment());
    case Kind::kGrowth: return intake_.handle_growth(now, message.growth());
    case Kind::kNotAvailable: return intake_.handle_not_available(now, payload_of(message.not_available()));
    case Kind::kRevocations:
      if (message.revocations().list().size() > kRevocationsBytesMax) return;
      actions_.push(action::TakeRevocations{message.revocations().list()});
      return;
    case Kind::kProbe: return dials_.handle_probe(now, message.probe(), links_.dial_patience(timeouts_.dial));
    case Kind::kRateProbe: return handle_rate_probe(now, message.rate_probe());
    case Kind::kBye: return origin_.handle_bye(message.bye());
    default: return;  // a newer origin may say more
  }
}

// An origin that says another run here than this worker told it is none that ever was: there is kNewRun for that.
void WorkerCore::handle_run(RunId run) {
  if (run == kNoRun || run_ != kNoRun) return;
  run_ = run;
  intake_.follow(run);
  actions_.push(action::FollowRun{run, false});
}

void WorkerCore::handle_new_run(RunId run) {
  if (run == kNoRun || run == run_ || next_run_ != kNoRun) return;
  next_run_ = run;
  actions_.push(action::info(
      installed_version() == kNoVersion
          ? fmt::format("the origin's run is {}; this worker follows it from now on", to_string(run))
          : fmt::format(
                "version {} is of another run than the origin's, {}; it stays in use until the first version of "
                "that run is installed",
                installed_version().value, to_string(run))));
  actions_.push(action::FollowRun{run, true});
}

void WorkerCore::handle_run_not_followed(Instant now, const Error& why) {
  actions_.push(action::warning("the run to follow cannot be written down: " + why.message()));
  run_retry_at_ = now + kRunRetryAfter;
}

void WorkerCore::handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) {
  if (!links_.is_link(conn)) {
    return refuse(conn, fail(Errc::kNotAllowed, Op::kReceive, "a chunk on a connection that leads to no parent"));
  }
  intake_.handle_chunk(now, conn, chunk);
}

// ---- time

void WorkerCore::handle_timeout(Instant now) {
  if (origin_.heartbeat_due(now)) intake_.send_heartbeat(now);
  origin_.handle_timeout(now);
  Core::handle_timeout(now);
  intake_.handle_timeout(now);
  dials_.handle_timeout(now);
  for (const NodeAddress& peer : links_.take_overdue()) {
    if (peer.id != kOriginId) dials_.handle_overdue(peer);
  }
  if (run_retry_at_ && now >= *run_retry_at_) {
    run_retry_at_.reset();
    const bool anew = next_run_ != kNoRun;
    actions_.push(action::FollowRun{anew ? next_run_ : run_, anew});
  }
}

std::optional<Instant> WorkerCore::poll_deadline() const {
  EarliestDeadline earliest;
  earliest.consider(origin_.poll_deadline());
  earliest.consider(intake_.poll_deadline());
  earliest.consider(dials_.poll_deadline());
  earliest.consider(run_retry_at_);
  earliest.consider(Core::poll_deadline());
  return earliest.first();
}

}  // namespace weightcast
