#include "transport/core/origin/origin_core.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

// To look whether nothing is published takes some time for each member.
constexpr Duration kProbingEvery = std::chrono::milliseconds(20);

}  // namespace

OriginCore::OriginCore(OriginConfig config)
    : Core(config.timeouts, config.protocols),
      config_(std::move(config)),
      reachability_(members_, conn_ids_, actions_),
      rates_(members_, actions_, config_.uplink),
      faults_(members_, uploads_, actions_, rates_),
      standby_places_(members_),
      publications_(config_, members_, holdings_, uploads_, actions_, rates_, faults_) {
  uploads_.require_place([this](const Uploads::Child& child, PayloadId payload) {
    const auto id = members_.id_of(child.name);
    return id && publications_.has_place(*members_.find(*id), payload);
  });
}

void OriginCore::start(Instant) {}

void OriginCore::stop(std::string_view reason) {
  for (auto& [id, member] : members_.all()) {
    if (!member.connected()) continue;
    close(member.conn, fail(Errc::kClosed, Op::kSend, std::string(reason)));
    members_.disconnect(member);
  }
  // Not NotAvailable, which from the origin means that nobody will have the payload: children would give up what they
  // have of it.
  for (const ConnId conn : uploads_.conns()) close(conn, fail(Errc::kClosed, Op::kSend, std::string(reason)));
}

void OriginCore::handle_publish_begun(Instant now, std::shared_ptr<const Manifest> manifest, double packed_share) {
  publications_.handle_publish_begun(now, std::move(manifest), packed_share);
  rates_.advance(now, publications_.traffic(now));
}

void OriginCore::handle_publish(Instant now, Instant started_at, const MadePayload& made) {
  publications_.handle_publish(now, started_at, made);
  rates_.advance(now, publications_.traffic(now));
}

// What cannot be hashed to its end is not what was published, or cannot be read.
void OriginCore::handle_payload_made(Instant now, PayloadId payload, const Result<MadePayload>& made) {
  const Status held = publications_.handle_payload_made(now, payload, made);
  const bool is_damaged =
      payload.is_full() && !held.has_value() && (held.error().code == Errc::kCorrupt || held.error().code == Errc::kIo);
  if (is_damaged) handle_damaged(now, payload, held.error());
}

std::vector<PayloadId> OriginCore::retained() const {
  std::vector<PayloadId> payloads = Core::retained();
  for (const auto& [version, publication] : publications_.all()) {
    if (publication.in_store() && !holdings_.contains(version)) payloads.push_back(version);
  }
  return payloads;
}

// ---- connections

void OriginCore::handle_connected(Instant, ConnId conn, const std::optional<PeerIdentity>&) {
  reachability_.handle_connected(conn);
}

void OriginCore::handle_closed(Instant now, ConnId conn, const Error& why) {
  if (reachability_.is_probe(conn)) {
    if (reachability_.handle_closed(now, conn, why.detail)) publications_.repair_all(now);
    return;
  }
  forget(conn);
  if (Member* member = members_.by_conn(conn)) lose(now, *member, why.detail);
}

// ---- messages

Speaker OriginCore::speaker_on(ConnId conn) const {
  return members_.by_conn(conn) != nullptr ? Speaker::kMember : Core::speaker_on(conn);
}

std::string OriginCore::name_on(ConnId conn) const {
  const Member* member = members_.by_conn(conn);
  return member != nullptr ? member->name : Core::name_on(conn);
}

void OriginCore::handle_excess(std::string_view name) {
  const auto id = members_.id_of(std::string(name));
  if (id) faults_.note_offence(*id, "sends more than its share of messages; it is read more slowly");
}

void OriginCore::handle_refused(Instant now, ConnId conn, const Error& why) {
  const auto id = members_.id_of(name_on(conn));
  Member* member = members_.by_conn(conn);
  refuse(conn, why);
  if (id) faults_.note_offence(*id, "sends messages that no worker sends");
  if (member != nullptr) lose(now, *member, why.detail);
}

void OriginCore::handle_message(Instant now, ConnId conn, const wire::Message& message) {
  Member* member = members_.by_conn(conn);
  if (!admit_message(now, conn)) {
    if (member == nullptr) return;
    faults_.note_offence(member->id, "sends more messages than any worker has reason to");
    return lose(now, *member, "it sends too many messages");
  }
  if (member == nullptr) {
    if (message.has_enroll() && unidentified_.contains(conn)) return handle_enroll(conn, message.enroll());
    if (unidentified_.contains(conn) && !message.has_join() && !message.has_hello() && !message.has_bye()) {
      note_stranger(conn, "speaks on another connection without saying who it is");
    }
    if (!message.has_join()) {
      handle_child_message(now, conn, message, "Join or Hello");
      return note_greedy();
    }
    if (unidentified_.contains(conn)) handle_join(now, conn, message.join());
    return;
  }
  member->heard_at = now;
  handle_member_message(now, *member, message);
}

void OriginCore::handle_parent_fault(Instant now, Member& member, const ParentFault& fault) {
  if (fault.parent == kOriginId && fault.damaged) handle_suspected(now, fault.payload, *fault.damaged);
  publications_.handle_parent_fault(now, member, fault);
}

void OriginCore::handle_member_message(Instant now, Member& member, const wire::Message& message) {
  using Kind = wire::Message::KindCase;
  const bool ours = member.other_run == kNoRun;  // else the versions that it speaks of are not this run's
  switch (message.kind_case()) {
    case Kind::kHeartbeat: return handle_heartbeat(now, member, message.heartbeat());
    case Kind::kInstalled:
      if (ours) publications_.handle_installed(now, member, message.installed());
      return;
    case Kind::kInstallFailed:
      if (!member.reports.spend(now)) return;
      if (ours) publications_.handle_install_failed(now, member, message.install_failed());
      return;
    case Kind::kParentFault:
      if (!member.reports.spend(now)) return;
      if (ours) handle_parent_fault(now, member, parent_fault_from_wire(message.parent_fault()));
      return;
    case Kind::kProbed:
      if (!member.reports.spend(now)) return;
      if (reachability_.handle_probed(now, member, message.probed())) publications_.repair_all(now);
      return;
    case Kind::kRateProbed: return rates_.handle_probed(now, member, message.rate_probed());
    case Kind::kLeave:
      drop(member.conn);
      return lose(now, member, "it left: " + message.leave().reason().substr(0, kReasonBytesMax), true);
    default: return;  // a newer worker may say more
  }
}

void OriginCore::handle_heartbeat(Instant now, Member& member, const wire::Heartbeat& beat) {
  const PayloadId receiving = payload_from_wire(beat.receiving());
  if (member.other_run == kNoRun && member.receiving != receiving)
    publications_.handle_receiving(now, member, receiving);
  member.chunks_verified = beat.chunks_verified();
  member.chunks_total = beat.chunks_total();
  member.progress_at = now;
  member.receive_bytes_per_s = beat.receive_bytes_per_s();
  member.bytes_received = beat.bytes_received();
  member.bytes_sent = beat.bytes_sent();
  if (member.other_run == kNoRun && beat.stripes_missing_size() <= int(kStripesMax)) {
    publications_.handle_progress(now, member, {beat.stripes_missing().begin(), beat.stripes_missing().end()});
  }
  if (member.other_run == kNoRun && beat.taken_version() != 0) {
    publications_.handle_taken(member, Version{beat.taken_version()}, beat.taken_after_s());
  }
  wire::Message ack;
  ack.mutable_heartbeat_ack();
  actions_.push(action::Send{member.conn, std::move(ack)});
  reachability_.tell(member);
  send_revocations(member, beat.revocations());
  rates_.handle_sent(now, uploads_.bytes_sent());
  uploads_.set_uplink(rates_.planned_origin_uplink());
  rates_.consider(now, member);
  probe_rates(now);
}

void OriginCore::probe_rates(Instant now) {
  if (!rates_.waits() || now - probing_at_ < kProbingEvery) return;
  probing_at_ = now;
  rates_.advance(now, publications_.traffic(now));
}

void OriginCore::handle_enroll(ConnId conn, const wire::Enroll& request) {
  const std::optional<PeerIdentity>& peer = unidentified_.peer(conn);
  const auto refuse_it = [&](Errc code, std::string why) {
    refuse(conn, fail(code, Op::kVerify, std::move(why)), Refusal::kEnrolment);
  };
  if (!peer) return refuse_it(Errc::kNotAllowed, "enrolment needs encryption: start the origin with --keys");
  if (peer->role != Role::kStranger) return refuse_it(Errc::kNotAllowed, "this connection has a certificate");
  const Result<std::uint32_t> protocol =
      agree_protocol(protocols_spoken_, protocol_range(request.protocol(), request.protocol_max()), "origin");
  if (!protocol.has_value()) return refuse_it(protocol.error().code, protocol.error().detail);
  if (request.name().size() > kNameBytesMax || request.host_name().size() > kNameBytesMax) {
    return refuse_it(Errc::kInvalidArgument, fmt::format("a name has at most {} bytes", kNameBytesMax));
  }
  if (enrolling_.insert(conn).second) actions_.push(action::Enroll{conn, unidentified_.host(conn), request});
}

void OriginCore::handle_enrolled(ConnId conn, const Result<EnrolledWorker>& enrolled) {
  // It may have been closed meanwhile.
  if (enrolling_.erase(conn) == 0 || !unidentified_.contains(conn)) return;
  if (!enrolled.has_value()) {
    const Error& why = enrolled.error();
    if (why.op == Op::kVerify) return refuse(conn, why, Refusal::kEnrolment);
    actions_.push(action::warning("a machine could not be enrolled: " + why.message()));
    return close(conn, fail(Errc::kIo, Op::kVerify, "this origin cannot enrol now; its log says why"));
  }
  wire::Message message;
  message.mutable_enrolled()->set_certificates(enrolled->certificates);
  actions_.push(action::info(
      fmt::format("worker {} is enrolled: a machine at {} has its keys", enrolled->name, unidentified_.host(conn))));
  actions_.push(action::Send{conn, std::move(message)});
  actions_.push(action::Close{conn});
  forget(conn);
}

void OriginCore::set_revocations(std::uint64_t number, std::string list) {
  revocations_number_ = number;
  revocations_ = std::move(list);
}

// Once on a connection: a worker that does not take it is not sent it again and again.
void OriginCore::send_revocations(Member& member, std::uint64_t known) {
  if (known >= revocations_number_ || member.revocations_sent == revocations_number_) return;
  member.revocations_sent = revocations_number_;
  wire::Message message;
  message.mutable_revocations()->set_list(revocations_);
  actions_.push(action::Send{member.conn, std::move(message)});
}

void OriginCore::handle_chunk(Instant now, ConnId conn, const ChunkArrival&) {
  refuse(conn, fail(Errc::kNotAllowed, Op::kReceive, "a chunk, which no node sends to an origin"));
  if (Member* member = members_.by_conn(conn))
    lose(now, *member, "it sent a chunk, which no worker sends to its origin");
}

void OriginCore::handle_damaged(Instant now, PayloadId payload, const Error& why) {
  last_error_ = why.message();
  actions_.push(action::warning(fmt::format("{}; it is withdrawn: publish a newer version", last_error_)));
  publications_.handle_damaged(now, payload);
}

void OriginCore::handle_version_lost(Instant now, Version version, std::shared_ptr<const Manifest> /*newest*/,
                                     const Error& why) {
  handle_damaged(now, version, why);
}

// ---- time

void OriginCore::handle_timeout(Instant now) {
  look_for_silence(now);
  Core::handle_timeout(now);
  reachability_.handle_timeout(now);
  publications_.handle_timeout(now);
  forget_lost(now);
}

void OriginCore::look_for_silence(Instant now) {
  const Duration silence = config_.timeouts.silence;
  // After a stall of this process everybody looks silent; what they said meanwhile is still to be read.
  const bool stalled = watched_at_ && now - *watched_at_ > silence / 2;
  watched_at_ = now;
  if (!stalled && (!silence_due_ || now < *silence_due_)) return;
  silence_due_.reset();
  for (auto& [id, member] : members_.all()) {
    if (!member.connected()) continue;
    if (stalled) member.heard_at = now;
    if (now - member.heard_at < silence) {
      const Instant due = member.heard_at + silence;
      silence_due_ = silence_due_ ? std::min(*silence_due_, due) : due;
      continue;
    }
    drop(member.conn);
    lose(now, member, fmt::format("silent for {:.1f} s", to_seconds(now - member.heard_at)));
  }
}

std::optional<Instant> OriginCore::poll_deadline() const {
  EarliestDeadline earliest;
  if (silence_due_) {
    earliest.consider(silence_due_);
    // Often enough that a time-out which comes late means a stall of this process, and not that nothing was due.
    if (watched_at_) earliest.consider(*watched_at_ + config_.timeouts.silence / 4);
  }
  earliest.consider(Core::poll_deadline());
  earliest.consider(reachability_.poll_deadline());
  earliest.consider(publications_.poll_deadline());
  earliest.consider(forget_due_);
  return earliest.first();
}

}  // namespace weightcast
