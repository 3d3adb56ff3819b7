#include "transport/core/worker_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "transport/core/payload_wire.h"

namespace weightcast {
namespace {

// A worker whose own disk failed tries the same version again after this.
constexpr Duration kRetryAfter = std::chrono::seconds(10);
// After a version was announced under another manifest: until what the disk still writes of the first one is done.
constexpr Duration kReplaceAfter = std::chrono::seconds(1);
// Old payloads beyond those kept that stay because children are still fetching them.
constexpr std::size_t kFetchedVersionsMax = 2;

action::Log info(std::string text) { return {action::Log::Level::kInfo, std::move(text)}; }
action::Log warning(std::string text) { return {action::Log::Level::kWarning, std::move(text)}; }

// The origin asks for one per worker that it cannot dial itself, as they join.
constexpr std::size_t kProbesMax = 64;
constexpr std::string_view kNotKept = "the origin keeps it no longer";

}  // namespace

WorkerCore::WorkerCore(WorkerConfig config)
    : config_(std::move(config)), links_(conn_ids_, actions_), uploads_(config_.timeouts, holdings_, actions_) {
  links_.set_origin(config_.origin_host, config_.origin_port);
}

void WorkerCore::restore(std::shared_ptr<const Manifest> manifest, const std::vector<Digest>& chunk_digests) {
  WC_CHECK(!started_);
  if (manifest->kind == PayloadKind::kFull) {
    Holding holding(manifest);
    holding.restore(chunk_digests, ChunkSet(manifest->chunk_count(), true));
    if (!holding.complete()) return;
    holdings_.emplace(manifest->id(), std::move(holding));
  }
  if (manifest->version < installed_) return;
  installed_ = manifest->version;
  installed_manifest_ = std::move(manifest);
}

void WorkerCore::restore_patch(std::shared_ptr<const Manifest> manifest, const std::vector<Digest>& chunk_digests) {
  WC_CHECK(!started_);
  Holding holding(manifest);
  holding.restore(chunk_digests, ChunkSet(manifest->chunk_count(), true));
  if (holding.complete()) holdings_.emplace(manifest->id(), std::move(holding));
}

void WorkerCore::start(Instant now) {
  started_ = true;
  origin_heard_at_ = now;
  dial_origin();
}

void WorkerCore::stop(std::string_view reason) {
  wire::Message message;
  message.mutable_leave()->set_reason(std::string(reason));
  send_to_origin(std::move(message));
  for (const auto& [payload, holding] : holdings_) uploads_.handle_gone(payload, reason);
  if (incoming_ && incoming_->download) incoming_->download->cancel();
  links_.close_unless([](ConnId) { return false; });
  if (origin_open_) actions_.push(action::Close{origin_});
  origin_open_ = joined_ = false;
}

// ---- connections

void WorkerCore::dial_origin() {
  redial_at_.reset();
  refused_ = false;
  origin_ = conn_ids_.next();
  origin_open_ = joined_ = false;
  actions_.push(action::Connect{origin_, config_.origin_host, config_.origin_port});
}

void WorkerCore::lose_origin(Instant now) {
  origin_open_ = joined_ = false;
  origin_ = ConnId{};
  const auto doublings = std::min<std::uint32_t>(redials_++, 10);
  redial_at_ =
      now + std::min(config_.timeouts.redial_max, config_.timeouts.redial_min * (std::int64_t{1} << doublings));
}

void WorkerCore::handle_accepted(Instant now, ConnId conn, std::string_view) { strangers_[conn] = now; }

void WorkerCore::handle_connected(Instant now, ConnId conn) {
  if (conn == origin_) {
    origin_open_ = true;
    origin_heard_at_ = now;
    wire::Message message;
    wire::Join* join = message.mutable_join();
    join->set_protocol(kProtocolVersion);
    join->set_name(config_.name);
    join->set_model_id(config_.model_id);
    join->set_incarnation(config_.incarnation);
    join->mutable_listen()->set_host(config_.listen_host);
    join->mutable_listen()->set_port(config_.listen_port);
    join->set_uplink_bytes_per_s(config_.uplink.bytes_per_s);
    join->set_downlink_bytes_per_s(config_.downlink.bytes_per_s);
    join->set_leaf_only(config_.leaf_only);
    join->set_standby(config_.standby);
    join->set_installed_version(installed_.value);
    join->set_receiving_version(receiving().version.value);
    join->set_receiving_base_version(receiving().base.value);
    if (installed_manifest_) {
      join->set_installed_digest(installed_manifest_->snapshot_digest.bytes.data(), Digest::kBytes);
    }
    join->set_base_unusable(base_unusable_);
    for (auto held = holdings_.rbegin(); held != holdings_.rend() && join->held_size() < int(kHeldMax); ++held) {
      if (held->second.complete()) set_payload(*join->add_held(), held->first);
    }
    actions_.push(action::Send{conn, std::move(message)});
    return;
  }
  if (end_probe(conn, true)) return actions_.push(action::Close{conn});
  if (!links_.is_link(conn)) return;
  links_.handle_connected(conn);
  say_hello(conn);
  if (incoming_) incoming_->download->handle_open(now, conn);
}

void WorkerCore::say_hello(ConnId conn) {
  wire::Message message;
  message.mutable_hello()->set_protocol(kProtocolVersion);
  message.mutable_hello()->set_peer_id(id_.value);
  message.mutable_hello()->set_name(config_.name);
  message.mutable_hello()->set_model_id(config_.model_id);
  actions_.push(action::Send{conn, std::move(message)});
}

void WorkerCore::handle_probe(const wire::Probe& probe) {
  if (!is_port(probe.address().port()) || probes_.size() >= kProbesMax) return;
  const ConnId conn = conn_ids_.next();
  probes_[conn] = PeerId{probe.peer_id()};
  actions_.push(action::Connect{conn, probe.address().host(), static_cast<std::uint16_t>(probe.address().port())});
}

bool WorkerCore::end_probe(ConnId conn, bool reached) {
  const auto probe = probes_.find(conn);
  if (probe == probes_.end()) return false;
  wire::Message message;
  message.mutable_probed()->set_peer_id(probe->second.value);
  message.mutable_probed()->set_reached(reached);
  send_to_origin(std::move(message));
  probes_.erase(probe);
  return true;
}

void WorkerCore::handle_closed(Instant now, ConnId conn, const Error& why) {
  strangers_.erase(conn);
  uploads_.handle_closed(conn);
  if (conn == origin_) {
    actions_.push(
        warning(fmt::format("origin {}:{}: {}; dialling again", config_.origin_host, config_.origin_port, why.detail)));
    if (!refused_) last_error_ = why.message();  // the origin's own words say more than that it closed
    lose_origin(now);
    return;
  }
  if (end_probe(conn, false) || !links_.is_link(conn)) return;
  links_.handle_closed(conn);
  if (incoming_) incoming_->download->handle_closed(now, conn);
  report_faults();
}

void WorkerCore::refuse(ConnId conn, const Error& why) {
  actions_.push(warning(fmt::format("closing a connection: {}", why.message())));
  wire::Message message;
  message.mutable_bye()->set_code(static_cast<std::uint32_t>(why.code));
  message.mutable_bye()->set_reason(why.detail.substr(0, kReasonBytesMax));
  actions_.push(action::Send{conn, std::move(message)});
  actions_.push(action::Close{conn});
  strangers_.erase(conn);
  uploads_.handle_closed(conn);
}

void WorkerCore::send_to_origin(wire::Message message) {
  if (origin_open_) actions_.push(action::Send{origin_, std::move(message)});
}

// ---- messages

void WorkerCore::handle_message(Instant now, ConnId conn, const wire::Message& message) {
  using Kind = wire::Message::KindCase;
  if (conn == origin_) {
    origin_heard_at_ = now;
    switch (message.kind_case()) {
      case Kind::kJoined:
        joined_ = true;
        redials_ = 0;
        id_ = PeerId{message.joined().peer_id()};
        if (incoming_) incoming_->download->handle_rejoined();
        // What is to come next is said anew: this origin may have another plan for it by now, or not have it at all.
        announced_.reset();
        retry_at_.reset();
        last_error_.clear();
        actions_.push(info(
            fmt::format("joined as peer {}; the latest version is {}", id_.value, message.joined().latest_version())));
        if (message.joined().heartbeat_ms() > 0) {
          config_.timeouts.heartbeat =
              std::chrono::milliseconds(std::clamp<std::uint32_t>(message.joined().heartbeat_ms(), 10, 10'000));
        }
        heartbeat_due_ = now;
        break;
      case Kind::kAnnounce: handle_announce(now, message.announce()); break;
      case Kind::kAssignment: handle_assignment(now, message.assignment()); break;
      case Kind::kGrowth: handle_growth(now, message.growth()); break;
      case Kind::kNotAvailable:
        if (!incoming_ || payload_of(message.not_available()) != incoming_->id) break;
        incoming_->download->handle_gone();
        if (announced_) abandon_incoming(now, kNotKept);
        break;
      case Kind::kProbe: handle_probe(message.probe()); break;
      case Kind::kHeartbeatAck: break;
      case Kind::kBye:
        refused_ = true;
        last_error_ = fmt::format("the origin refused: {}", message.bye().reason());
        actions_.push(warning(last_error_));
        break;
      default: break;  // a newer origin may say more
    }
    return;
  }
  if (links_.is_link(conn)) {
    if (!incoming_) return;
    Download& download = *incoming_->download;
    switch (message.kind_case()) {
      case Kind::kDigestPart:
        if (payload_of(message.digest_part()) != incoming_->id) break;
        if (Status s = download.handle_digest_part(now, conn, message.digest_part()); !s.has_value()) {
          actions_.push(warning(s.error().message()));
        } else {
          uploads_.handle_known(now, incoming_->id);  // it may have released chunks that came before it
        }
        break;
      case Kind::kUpToDate:
        if (payload_of(message.up_to_date()) == incoming_->id) {
          download.handle_up_to_date(now, conn, message.up_to_date().stripe());
        }
        break;
      case Kind::kUnsubscribed:
        if (payload_of(message.unsubscribed()) == incoming_->id) {
          download.handle_unsubscribed(now, conn, message.unsubscribed().stripe());
        }
        break;
      case Kind::kNotAvailable:
        if (payload_of(message.not_available()) != incoming_->id) break;
        download.handle_not_available(now, conn);
        if (download.gone() && announced_) return abandon_incoming(now, kNotKept);
        break;
      default: break;
    }
    report_faults();
    return;
  }
  switch (message.kind_case()) {
    case Kind::kHello:
      strangers_.erase(conn);
      if (message.hello().protocol() != kProtocolVersion) {
        return refuse(conn, fail(Errc::kUnsupported, Op::kReceive,
                                 fmt::format("hello: protocol {}, this node speaks {}", message.hello().protocol(),
                                             kProtocolVersion)));
      }
      uploads_.handle_hello(conn, {PeerId{message.hello().peer_id()}, message.hello().name().substr(0, kNameBytesMax)});
      break;
    case Kind::kSubscribe:
      if (Status s = uploads_.handle_subscribe(now, conn, message.subscribe()); !s.has_value()) refuse(conn, s.error());
      break;
    case Kind::kUnsubscribe: uploads_.handle_unsubscribe(conn, message.unsubscribe()); break;
    case Kind::kJoin:
      refuse(conn, fail(Errc::kNotAllowed, Op::kJoin, "this node is a worker; join the origin instead"));
      break;
    default:
      if (!uploads_.is_child(conn)) {
        refuse(conn, fail(Errc::kNotAllowed, Op::kReceive, "the first message is neither hello nor join"));
      }
  }
}

void WorkerCore::handle_announce(Instant now, const wire::Announce& announce) {
  Result<Manifest> manifest = manifest_from_wire(announce.manifest());
  if (!manifest.has_value()) {
    last_error_ = manifest.error().message();
    actions_.push(warning(last_error_));
    return;
  }
  if (manifest->version <= installed_) return send_installed();
  const bool same_id = incoming_ && incoming_->id == manifest->id();
  if (same_id) {
    // A restarted origin makes an open payload anew, the same bytes again, and may not have come as far yet.
    const std::shared_ptr<const Manifest>& here = incoming_->source.manifest;
    const bool grown = continues(*here, *manifest);
    if (grown || continues(*manifest, *here)) {
      incoming_->download->handle_announced();
      handle_assignment(now, announce.assignment());
      if (grown) grow_incoming(now, std::make_shared<const Manifest>(std::move(*manifest)));
      return;
    }
  }
  // What is said last counts: an origin that no longer has what is arriving leads this worker on from what it
  // installed.
  announced_ = Announced{std::make_shared<const Manifest>(std::move(*manifest)), announce.assignment()};
  const bool behind = incoming_ && incoming_->id.version > announced_->manifest->version;
  if (behind && !incoming_->download->gone()) return;
  retry_at_.reset();
  if (same_id) {
    retry_at_ = now + kReplaceAfter;
    return abandon_incoming(now, "the origin announces other bytes under its number");
  }
  if (incoming_ && incoming_->download->gone()) return abandon_incoming(now, kNotKept);
  if (incoming_ && cheaper_than_incoming(*announced_->manifest)) {
    return abandon_incoming(now, "what is announced takes fewer bytes than are missing of it");
  }
  take_up_newest(now);
}

bool WorkerCore::fits(const Manifest& manifest) const {
  return manifest.base_version == kNoVersion || (manifest.base_version == installed_ && !base_unusable_);
}

bool WorkerCore::cheaper_than_incoming(const Manifest& manifest) const {
  if (incoming_->phase == Phase::kFinishing || !fits(manifest)) return false;
  const Holding& holding = holdings_.at(incoming_->id);
  const std::uint64_t here_bytes = std::uint64_t{holding.verified().count()} * holding.manifest().chunk_bytes;
  return manifest.planned_bytes() + here_bytes < holding.manifest().planned_bytes();
}

void WorkerCore::handle_assignment(Instant now, const wire::Assignment& assignment) {
  const PayloadId payload = payload_of(assignment);
  if (incoming_ && incoming_->id == payload) {
    incoming_->source.assignment = assignment;
    if (Status s = incoming_->download->assign(now, id_, assignment); !s.has_value()) {
      actions_.push(warning(s.error().message()));
    }
    report_faults();
  } else if (announced_ && announced_->manifest->id() == payload &&
             assignment.epoch() > announced_->assignment.epoch()) {
    announced_->assignment = assignment;
  }
}

void WorkerCore::handle_growth(Instant now, const wire::Growth& growth) {
  Announced* grows = nullptr;
  if (incoming_ && incoming_->id == payload_of(growth)) {
    grows = &incoming_->source;
  } else if (announced_ && announced_->manifest->id() == payload_of(growth)) {
    grows = &*announced_;
  }
  if (grows == nullptr) return;
  Result<Manifest> grown = grown_by(*grows->manifest, growth);
  if (!grown.has_value()) return actions_.push(warning(grown.error().message()));
  auto manifest = std::make_shared<const Manifest>(std::move(*grown));
  if (announced_ && grows == &*announced_) {
    announced_->manifest = std::move(manifest);
  } else {
    grow_incoming(now, std::move(manifest));
  }
}

void WorkerCore::grow_incoming(Instant now, std::shared_ptr<const Manifest> manifest) {
  if (!incoming_->source.manifest->open) return;
  const PayloadId payload = incoming_->id;
  incoming_->source.manifest = manifest;
  holdings_.at(payload).grow(manifest);
  if (incoming_->phase != Phase::kBeginning) {
    incoming_->stored.grow(manifest->chunk_count());
    actions_.push(action::GrowPayload{std::move(manifest)});
  }
  incoming_->download->handle_grown(now);
  uploads_.handle_known(now, payload);
  report_faults();
  finish_if_complete(now);
}

// ---- one version, from announced to installed

void WorkerCore::take_up_newest(Instant now) {
  if (incoming_ || !announced_ || retry_at_) return;
  Announced next = *std::exchange(announced_, std::nullopt);
  // A patch on another version than is installed by now: the origin hears what is, and assigns what fits.
  if (next.manifest->version <= installed_ || !fits(*next.manifest)) return;
  const PayloadId payload = next.manifest->id();
  const auto [holding, added] = holdings_.try_emplace(payload, next.manifest);
  WC_CHECK(added);
  incoming_.emplace();
  incoming_->id = payload;
  incoming_->source = next;
  incoming_->download =
      std::make_unique<Download>(config_.timeouts, config_.streams, holding->second, links_, actions_);
  incoming_->begun_open = next.manifest->open;
  actions_.push(action::BeginPayload{next.manifest});
  if (Status s = incoming_->download->assign(now, id_, next.assignment); !s.has_value()) {
    return fail_incoming(now, s.error(), false);
  }
  links_.close_unless([&](ConnId conn) { return incoming_->download->uses(conn); });
  uploads_.handle_known(now, payload);
  // The origin plans a payload with those who receive it: it should not learn half a second late that this one does.
  if (joined_) send_heartbeat(now);
}

void WorkerCore::handle_payload_begun(Instant now, PayloadId payload, Result<RestoredPayload> restored) {
  if (!incoming_ || incoming_->id != payload || incoming_->phase != Phase::kBeginning) return;
  if (!restored.has_value()) return fail_incoming(now, restored.error(), false);
  Holding& holding = holdings_.at(payload);
  holding.restore(restored->chunk_digests, restored->held);
  if (holding.verified().count() > 0) {
    actions_.push(info(fmt::format("version {}: {} of {} chunks were here already", payload.version.value,
                                   holding.verified().count(), holding.manifest().chunk_count())));
  }
  incoming_->stored = holding.verified();
  incoming_->phase = Phase::kReceiving;
  if (incoming_->begun_open) actions_.push(action::GrowPayload{holding.shared_manifest()});
  incoming_->download->handle_storage_ready(now);
  uploads_.handle_known(now, payload);
  finish_if_complete(now);
}

void WorkerCore::handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) {
  if (!links_.is_link(conn)) {
    return refuse(conn, fail(Errc::kNotAllowed, Op::kReceive, "a chunk from a connection that was not asked for one"));
  }
  if (!incoming_ || incoming_->id != chunk.payload || incoming_->phase != Phase::kReceiving) return;
  bytes_received_ += chunk.size_bytes;
  if (incoming_->download->handle_chunk(now, conn, chunk)) uploads_.handle_verified(now, chunk.payload, chunk.chunk);
  report_faults();
}

void WorkerCore::handle_chunk_sent(Instant now, ConnId conn) { uploads_.handle_chunk_sent(now, conn); }

void WorkerCore::handle_chunk_stored(Instant now, PayloadId payload, ChunkIndex chunk, Status status) {
  if (!incoming_ || incoming_->id != payload) return;
  if (!status.has_value()) {
    return fail_incoming(now, status.error(), payload.is_patch() && asks_for_full(status.error().code));
  }
  // Also of an earlier attempt at this version: what that one stored is stored.
  if (chunk.value < incoming_->stored.size()) incoming_->stored.insert(chunk);
  finish_if_complete(now);
}

void WorkerCore::finish_if_complete(Instant now) {
  if (incoming_->phase != Phase::kReceiving || !holdings_.at(incoming_->id).complete()) return;
  if (!incoming_->stored.complete()) return;
  incoming_->phase = Phase::kFinishing;
  incoming_->stored_at = now;
  if (config_.single_copy && incoming_->id.is_patch()) {
    const PayloadId base{incoming_->id.base};
    uploads_.handle_gone(base, "this node has one copy, which the next version takes");
    holdings_.erase(base);
  }
  actions_.push(action::FinishPayload{incoming_->id});
}

void WorkerCore::handle_finished(Instant now, PayloadId payload, Status status) {
  if (!incoming_ || incoming_->id != payload || incoming_->phase != Phase::kFinishing) return;
  if (!status.has_value()) {
    const Errc code = status.error().code;
    return fail_incoming(now, status.error(), code == Errc::kCorrupt || code == Errc::kWrongBase);
  }
  installed_ = payload.version;
  installed_manifest_ = holdings_.at(payload).shared_manifest();
  base_unusable_ = false;
  transfer_s_ = to_seconds(incoming_->stored_at - incoming_->download->first_chunk_at().value_or(incoming_->stored_at));
  finish_s_ = to_seconds(now - incoming_->stored_at);
  installed_seconds_ = to_seconds(now - incoming_->download->first_chunk_at().value_or(now));
  last_error_.clear();
  incoming_.reset();
  actions_.push(
      info(fmt::format("version {} installed, {:.3f} s after its first chunk", installed_.value, installed_seconds_)));
  send_installed();
  forget_old_versions();
  take_up_newest(now);
}

void WorkerCore::send_installed() {
  wire::Message message;
  wire::Installed* done = message.mutable_installed();
  done->set_version(installed_.value);
  if (installed_manifest_) {
    done->set_base_version(installed_manifest_->base_version.value);
    done->set_snapshot_digest(installed_manifest_->snapshot_digest.bytes.data(), Digest::kBytes);
  }
  done->set_bytes_received(bytes_received_);
  done->set_seconds(installed_seconds_);
  send_to_origin(std::move(message));
}

void WorkerCore::fail_incoming(Instant now, const Error& why, bool discard) {
  const PayloadId payload = incoming_->id;
  last_error_ = fmt::format("version {}: {}", payload.version.value, why.message());
  actions_.push(warning(last_error_));
  wire::Message message;
  set_payload(*message.mutable_install_failed(), payload);
  message.mutable_install_failed()->set_code(static_cast<std::uint32_t>(why.code));
  message.mutable_install_failed()->set_detail(why.detail.substr(0, kReasonBytesMax));
  send_to_origin(std::move(message));

  incoming_->download->cancel();
  if (discard || incoming_->source.manifest->open) actions_.push(action::DiscardPayload{payload});
  uploads_.handle_gone(payload, "this node could not store the version");
  // A patch that does not fit never will: the origin sends the version whole. What was announced since is newer; else
  // the same is tried again, later and from what is on disk.
  const bool hopeless = payload.is_patch() && asks_for_full(why.code);
  if (hopeless) base_unusable_ = true;
  if (!announced_ && !hopeless) {
    announced_ = std::move(incoming_->source);
    retry_at_ = now + kRetryAfter;
  }
  incoming_.reset();
  holdings_.erase(payload);
  take_up_newest(now);
}

void WorkerCore::abandon_incoming(Instant now, std::string_view why) {
  const PayloadId payload = incoming_->id;
  actions_.push(info(fmt::format("version {}: {}; going on with version {}", payload.version.value, why,
                                 announced_->manifest->version.value)));
  incoming_->download->cancel();
  actions_.push(action::DiscardPayload{payload});
  uploads_.handle_gone(payload, why);
  incoming_.reset();
  holdings_.erase(payload);
  take_up_newest(now);
}

void WorkerCore::forget_old_versions() {
  std::set<Version> versions;
  for (const auto& [payload, holding] : holdings_) versions.insert(payload.version);
  for (auto held = holdings_.begin(); held != holdings_.end() && versions.size() > config_.versions_kept;) {
    const PayloadId payload = held->first;
    if (payload.version == installed_) break;
    const bool fetched = uploads_.wanted(payload) && versions.size() <= config_.versions_kept + kFetchedVersionsMax;
    if (fetched) {
      ++held;
      continue;
    }
    uploads_.handle_gone(payload, "this node keeps newer versions only");
    held = holdings_.erase(held);
    if (held == holdings_.end() || held->first.version != payload.version) versions.erase(payload.version);
  }
}

void WorkerCore::report_faults() {
  if (!incoming_) return;
  for (wire::ParentFault& fault : incoming_->download->take_faults()) {
    wire::Message message;
    *message.mutable_parent_fault() = std::move(fault);
    send_to_origin(std::move(message));
  }
}

// ---- time

void WorkerCore::send_heartbeat(Instant now) {
  wire::Message message;
  wire::Heartbeat* beat = message.mutable_heartbeat();
  beat->set_installed_version(installed_.value);
  beat->set_receiving_version(receiving().version.value);
  beat->set_receiving_base_version(receiving().base.value);
  beat->set_chunks_verified(chunks_verified());
  beat->set_chunks_total(chunks_total());
  beat->set_bytes_received(bytes_received_);
  beat->set_bytes_sent(uploads_.bytes_sent());
  beat->set_receive_bytes_per_s(receive_bytes_per_s());
  send_to_origin(std::move(message));
  heartbeat_due_ = now + config_.timeouts.heartbeat;
}

void WorkerCore::handle_timeout(Instant now) {
  const Timeouts& t = config_.timeouts;
  if (redial_at_ && now >= *redial_at_) dial_origin();
  if (joined_ && now >= heartbeat_due_) send_heartbeat(now);
  if (origin_open_ && now - origin_heard_at_ >= t.origin_silence) {
    actions_.push(warning("the origin says nothing; dialling again"));
    actions_.push(action::Close{origin_});
    lose_origin(now);
  }
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    const auto [conn, since] = *stranger++;
    if (now - since >= t.greeting) {
      refuse(conn, fail(Errc::kTimedOut, Op::kReceive, "a connection that said nothing after it was made"));
    }
  }
  uploads_.handle_timeout(now);
  if (incoming_) incoming_->download->handle_timeout(now);
  report_faults();
  if (retry_at_ && now >= *retry_at_) {
    retry_at_.reset();
    take_up_newest(now);
  }
}

std::optional<Instant> WorkerCore::poll_deadline() const {
  EarliestDeadline earliest;
  earliest.consider(redial_at_);
  earliest.consider(retry_at_);
  if (joined_) earliest.consider(heartbeat_due_);
  if (origin_open_) earliest.consider(origin_heard_at_ + config_.timeouts.origin_silence);
  // Numbered as they come: the first has waited longest.
  if (!strangers_.empty()) earliest.consider(strangers_.begin()->second + config_.timeouts.greeting);
  earliest.consider(uploads_.poll_deadline());
  if (incoming_) earliest.consider(incoming_->download->poll_deadline());
  return earliest.first();
}

// ---- getters

PayloadId WorkerCore::receiving() const { return incoming_ ? incoming_->id : PayloadId{}; }
std::uint32_t WorkerCore::chunks_verified() const {
  return incoming_ ? holdings_.at(incoming_->id).verified().count() : 0;
}
std::uint32_t WorkerCore::chunks_total() const {
  return incoming_ ? holdings_.at(incoming_->id).manifest().chunk_count() : 0;
}
double WorkerCore::receive_bytes_per_s() const { return incoming_ ? incoming_->download->bytes_per_s() : 0; }
std::string WorkerCore::parent_name() const { return incoming_ ? incoming_->download->parent_name() : std::string(); }

}  // namespace weightcast
