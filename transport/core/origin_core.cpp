#include "transport/core/origin_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weightcast {
namespace {

constexpr std::size_t kMissingNamesMax = 8;
// Publications whose plans are still looked after; a worker that is further behind is given the latest.
constexpr std::size_t kPublicationsMax = 4;
// How many of those whom the origin cannot dial a new worker is asked to try.
constexpr std::size_t kProbesAsked = 16;
// Heartbeats of all workers together come no more often than one in so long; beyond that each speaks less often.
constexpr Duration kHeartbeatSpacing = std::chrono::microseconds(200);

action::Log info(std::string text) { return {action::Log::Level::kInfo, std::move(text)}; }
action::Log warning(std::string text) { return {action::Log::Level::kWarning, std::move(text)}; }

PlanMember plan_member(const Member& member) {
  return {member.id, member.uplink, member.downlink, member.can_relay()};
}

/// What a child's complaint says about its parent's forwarding; nothing if it need not be its failing.
std::optional<PeerFault> failing_of(wire::FaultKind kind, const Member& parent, const Member& child, Version version) {
  switch (kind) {
    case wire::FAULT_KIND_CORRUPT: return PeerFault::kCorrupt;
    case wire::FAULT_KIND_SLOW: return PeerFault::kSlow;
    case wire::FAULT_KIND_NOT_AVAILABLE: return std::nullopt;
    case wire::FAULT_KIND_STARVED: {
      // By its own word it has more than it passes on.
      const bool has_more = parent.installed == version ||
                            (parent.receiving == version && parent.chunks_verified > child.chunks_verified);
      return has_more ? std::optional(PeerFault::kSlow) : std::nullopt;
    }
    default: return PeerFault::kClosed;
  }
}

Rate rate_from_wire(double bytes_per_s) {
  return std::isfinite(bytes_per_s) && bytes_per_s > 0 ? Rate{bytes_per_s} : Rate{};
}

}  // namespace

OriginCore::OriginCore(OriginConfig config)
    : config_(std::move(config)), uploads_(config_.timeouts, holdings_, actions_) {}

void OriginCore::restore(std::shared_ptr<const Manifest> manifest, const std::vector<Digest>& chunk_digests) {
  const Version version = manifest->version;
  Holding holding(manifest);
  holding.restore(chunk_digests, ChunkSet(manifest->chunk_count(), true));
  if (!holding.complete()) return;
  holdings_.emplace(version, std::move(holding));
  Publication& publication = publications_[version];
  publication.plan = make_plan(plan_request(Instant{}, manifest->payload_bytes));
  publication.manifest = std::move(manifest);
  latest_ = std::max(latest_, version);
}

void OriginCore::start(Instant) {}

double OriginCore::score_of(Instant now, const Member& member) {
  return member.score.score(now, member.uplink.limited() ? member.uplink : Rate{});
}

void OriginCore::restore_peers(Instant now, const std::vector<PeerRecord>& records) {
  for (const PeerRecord& record : records) {
    Member& member = members_.by_name(record.name);
    member.score = PeerScore(record.score, now);
    member.standing = PeerStanding(record.standing);
    member.heard_at = now;
  }
}

std::vector<PeerRecord> OriginCore::peer_records(Instant now) const {
  std::vector<PeerRecord> records;
  for (const auto& [id, member] : members_.all()) {
    records.push_back({member.name, member.score.record(now), member.standing.record()});
  }
  return records;
}

void OriginCore::end(Publication& publication) {
  if (publication.ended || !publication.announced) return;
  publication.ended = true;
  for (const PeerId id : publication.plan.members) {
    Member* member = members_.find(id);
    const Standing before = member->standing.standing();
    member->standing.handle_publication_end(member->installed >= publication.manifest->version);
    if (member->standing.standing() == before) continue;
    actions_.push(info(fmt::format("worker {} is now {}", member->name, to_string(member->standing.standing()))));
  }
  ++peer_records_generation_;
}

void OriginCore::stop(std::string_view reason) {
  for (auto& [id, member] : members_.all()) {
    if (!member.connected()) continue;
    refuse(member.conn, fail(Errc::kClosed, Op::kSend, std::string(reason)));
    members_.disconnect(member);
  }
  for (const auto& [version, holding] : holdings_) uploads_.handle_gone(version, reason);
}

// ---- publications

PlanRequest OriginCore::plan_request(Instant now, std::uint64_t payload_bytes, const Publication* publication) const {
  PlanRequest request;
  request.origin_uplink = config_.uplink;
  request.payload_bytes = payload_bytes;
  request.topology = config_.topology;
  request.hop_delay = config_.hop_delay;
  std::vector<RankedPeer> ranked;
  for (const auto& [id, member] : members_.all()) {
    if (!member.active() || (publication != nullptr && !takes_part(*publication, member))) continue;
    ranked.push_back({id, member.standing.standing(), score_of(now, member)});
  }
  rank_peers(ranked);
  for (const RankedPeer& peer : ranked) request.members.push_back(plan_member(*members_.find(peer.id)));
  return request;
}

Plan OriginCore::plan_for(Instant now, std::uint64_t payload_bytes) const {
  return make_plan(plan_request(now, payload_bytes));
}

Status OriginCore::check_version(Version version) const {
  if (version == kNoVersion) return fail(Errc::kInvalidArgument, Op::kPublish, "version 0: versions start at 1");
  if (version <= latest_) {
    return fail(Errc::kAlreadyExists, Op::kPublish,
                fmt::format("version {}: the latest is {}; versions must grow", version.value, latest_.value));
  }
  for (const auto& [id, member] : members_.all()) {
    if (!member.connected() || member.installed < version) continue;
    return fail(Errc::kAlreadyExists, Op::kPublish,
                fmt::format("version {}: worker {} is on version {} already, from an earlier run; publish a greater one, "
                            "or empty its --state directory",
                            version.value, member.name, member.installed.value));
  }
  return {};
}

void OriginCore::handle_publish(Instant now, Instant started_at, std::shared_ptr<const Manifest> manifest,
                                const std::vector<Digest>& chunk_digests) {
  const Version version = manifest->version;
  WC_CHECK(version > latest_);
  Holding holding(manifest);
  holding.restore(chunk_digests, ChunkSet(manifest->chunk_count(), true));
  WC_CHECK(holding.complete());
  holdings_.emplace(version, std::move(holding));
  latest_ = version;

  for (auto& [older, publication] : publications_) end(publication);
  std::erase_if(unreachable_, [&](PeerId id) { return !members_.find(id)->connected(); });
  members_.forget_lost(now, [&](PeerId id) {
    return std::ranges::none_of(publications_, [&](const auto& p) { return std::ranges::count(p.second.plan.members, id) > 0; });
  });
  PlanRequest request = plan_request(now, manifest->payload_bytes);
  request.chunk_bytes = manifest->chunk_bytes;
  Publication& publication = publications_[version];
  publication.plan = make_plan(request);
  publication.manifest = std::move(manifest);
  publication.announced = true;
  publication.started_at = started_at;
  ++epoch_;
  actions_.push(info(fmt::format("publishing version {}: {} to {} workers by {}, chunks of {}, predicted {:.3f} s",
                                 version.value, format_bytes(publication.manifest->payload_bytes),
                                 publication.plan.members.size(), to_string(publication.plan.topology),
                                 format_bytes(publication.manifest->chunk_bytes),
                                 to_seconds(publication.plan.predicted_t100))));
  const PlanIndex index(publication.plan);
  for (const PeerId id : publication.plan.members) {
    const Member& member = *members_.find(id);
    announce(publication, member, assignment_for(publication, index, member));
  }
  uploads_.handle_known(now, version);
  note_progress(now, publication);
  forget_old_versions();
  repair_outdated(now);
}

void OriginCore::announce(Publication& publication, const Member& member, wire::Assignment assignment) {
  publication.told[member.id] = assignment.SerializeAsString();
  assignment.set_epoch(epoch_.value);
  wire::Message message;
  *message.mutable_announce()->mutable_manifest() = manifest_to_wire(*publication.manifest);
  *message.mutable_announce()->mutable_assignment() = std::move(assignment);
  actions_.push(action::Send{member.conn, std::move(message)});
}

void OriginCore::repair(Instant now, Version version) {
  Publication& publication = publications_.at(version);
  PlanRequest request = plan_request(now, publication.manifest->payload_bytes, &publication);
  request.chunk_bytes = publication.manifest->chunk_bytes;
  for (PlanMember& m : request.members) m.can_relay = m.can_relay && !publication.demoted.contains(m.id);
  publication.plan = repair_plan(publication.plan, request);
  ++epoch_;
  const PlanIndex index(publication.plan);
  for (const PeerId id : publication.plan.members) {
    const Member& member = *members_.find(id);
    if (!member.connected() || member.installed >= version) continue;
    const auto told = publication.told.find(id);
    if (told == publication.told.end()) continue;  // it was told of a newer version, or will be told of this one
    wire::Assignment assignment = assignment_for(publication, index, member);
    std::string text = assignment.SerializeAsString();
    if (text == told->second) continue;
    told->second = std::move(text);
    assignment.set_epoch(epoch_.value);
    wire::Message message;
    *message.mutable_assignment() = std::move(assignment);
    actions_.push(action::Send{member.conn, std::move(message)});
  }
}

wire::NodeAddress OriginCore::address_of(PeerId id) const {
  wire::NodeAddress address;
  address.set_peer_id(id.value);
  if (id == kOriginId) {
    address.set_name(config_.name);  // everyone knows its address already
    return address;
  }
  const Member* member = members_.find(id);
  WC_CHECK(member != nullptr);
  address.set_name(member->name);
  address.mutable_address()->set_host(member->host);
  address.mutable_address()->set_port(member->port);
  return address;
}

wire::Assignment OriginCore::assignment_for(const Publication& publication, const PlanIndex& index,
                                            const Member& member) const {
  const Plan& plan = publication.plan;
  const auto at = static_cast<std::size_t>(std::ranges::find(plan.members, member.id) - plan.members.begin());
  std::uint32_t weights = 0;
  for (const StripePlan& stripe : plan.stripes) weights += stripe.weight;

  wire::Assignment assignment;
  assignment.set_version(publication.manifest->version.value);
  for (std::uint32_t s = 0; s < plan.stripes.size(); ++s) {
    wire::StripeSource* source = assignment.add_stripes();
    bool rates_known = config_.uplink.limited() && member.downlink.limited();
    for (const PeerId id : index.ancestors_of(member.id, s)) {
      *source->add_ancestors() = address_of(id);
      if (id != kOriginId) rates_known = rates_known && members_.find(id)->uplink.limited();
    }
    // A child that does not know what to expect cannot call its parent slow.
    if (rates_known && at < plan.rates.size()) {
      source->set_predicted_bytes_per_s(plan.rates[at].bytes_per_s * plan.stripes[s].weight / weights);
    }
    assignment.add_stripe_weights(plan.stripes[s].weight);
  }
  return assignment;
}

void OriginCore::ensure_planned(Instant now, Member& member) {
  if (latest_ == kNoVersion || !member.active() || member.installed >= latest_) return;
  Publication& publication = publications_.at(latest_);
  if (!publication.announced) {  // recovered from disk: its time counts from the first who wants it
    publication.announced = true;
    publication.started_at = now;
  }
  publication.failed.erase(member.id);
  repair(now, latest_);
  const PlanIndex index(publication.plan);
  announce(publication, member, assignment_for(publication, index, member));
}

void OriginCore::resume_receiving(Instant now, Member& member) {
  const Version version = member.receiving;
  if (version == kNoVersion || version == latest_) return;  // of the latest every member is told
  const auto found = publications_.find(version);
  if (found == publications_.end() || !holdings_.contains(version) || !member.active()) {
    wire::Message message;
    message.mutable_not_available()->set_version(version.value);
    message.mutable_not_available()->set_reason("the origin plans newer versions only");
    actions_.push(action::Send{member.conn, std::move(message)});
    return;
  }
  if (!found->second.announced) {
    found->second.announced = true;
    found->second.started_at = now;
  }
  found->second.told.insert_or_assign(member.id, std::string());  // so that repair() tells it
  repair(now, version);
}

bool OriginCore::takes_part(const Publication& publication, const Member& member) const {
  const Version version = publication.manifest->version;
  if (!member.active() || publication.failed.contains(member.id)) return false;
  if (version == latest_) return true;
  if (!publication.told.contains(member.id)) return false;
  if (publication.holders.contains(member.id) || member.receiving == version) return true;
  return member.receiving == kNoVersion && member.installed < version;
}

void OriginCore::repair_outdated(Instant now) {
  for (auto& [version, publication] : publications_) {
    if (version == latest_) continue;
    const auto& planned = publication.plan.members;
    const auto taking = std::ranges::count_if(
        members_.all(), [&](const auto& m) { return takes_part(publication, m.second); });
    const bool same = std::size_t(taking) == planned.size() &&
                      std::ranges::all_of(planned, [&](PeerId id) { return takes_part(publication, *members_.find(id)); });
    if (!same) repair(now, version);
  }
}

void OriginCore::note_progress(Instant now, Publication& publication) {
  if (!publication.announced || publication.t100) return;
  std::uint32_t active = 0, installed = 0;
  for (const auto& [id, member] : members_.all()) {
    if (!member.active()) continue;
    ++active;
    if (member.installed >= publication.manifest->version) ++installed;
  }
  if (active == 0) return;
  const Duration elapsed = now - publication.started_at;
  std::uint32_t next = active - installed;
  const auto note = [&](std::optional<Duration>& t, double fraction) {
    if (t) return;
    const auto wanted = static_cast<std::uint32_t>(std::ceil(fraction * double(active) - 1e-9));
    if (installed >= wanted) {
      t = elapsed;
    } else {
      next = std::min(next, wanted - installed);
    }
  };
  note(publication.t50, 0.5);
  note(publication.t90, 0.9);
  note(publication.t100, 1.0);
  publication.installs_to_count = next;
  if (publication.t100) end(publication);
}

std::optional<PublicationProgress> OriginCore::progress(Version version) const {
  const auto found = publications_.find(version);
  if (found == publications_.end()) return std::nullopt;
  const Publication& publication = found->second;
  PublicationProgress progress;
  progress.version = version;
  progress.kind = publication.manifest->kind;
  progress.payload_bytes = publication.manifest->payload_bytes;
  progress.t50 = publication.t50;
  progress.t90 = publication.t90;
  progress.t100 = publication.t100;
  progress.topology = publication.plan.topology;
  progress.predicted = publication.plan.predicted_t100;
  for (const auto& [id, member] : members_.all()) {
    if (!member.active()) continue;
    ++progress.active;
    if (member.installed >= version) {
      ++progress.installed;
    } else if (progress.missing.size() < kMissingNamesMax) {
      progress.missing.push_back(member.name);
    }
  }
  return progress;
}

const Plan* OriginCore::latest_plan() const {
  const auto found = publications_.find(latest_);
  return found == publications_.end() ? nullptr : &found->second.plan;
}

void OriginCore::forget_old_versions() {
  while (holdings_.size() > config_.versions_kept) {
    uploads_.handle_gone(holdings_.begin()->first, "the origin keeps newer versions only");
    holdings_.erase(holdings_.begin());
  }
  while (publications_.size() > kPublicationsMax) publications_.erase(publications_.begin());
}

// ---- connections

void OriginCore::handle_accepted(Instant now, ConnId conn, std::string_view peer_host) {
  strangers_[conn] = {now, std::string(peer_host)};
}

void OriginCore::probe(const Member& member) {
  const ConnId conn = conn_ids_.next();
  probes_[conn] = member.id;
  actions_.push(action::Connect{conn, member.host, member.port});
}

void OriginCore::ask_to_probe(const Member& prober, const Member& member) {
  wire::Message message;
  message.mutable_probe()->set_peer_id(member.id.value);
  message.mutable_probe()->mutable_address()->set_host(member.host);
  message.mutable_probe()->mutable_address()->set_port(member.port);
  actions_.push(action::Send{prober.conn, std::move(message)});
}

void OriginCore::handle_probed(Instant now, const wire::Probed& probed) {
  Member* member = members_.find(PeerId{probed.peer_id()});
  if (member == nullptr || !probed.reached() || !member->unreachable) return;
  member->unreachable = false;
  unreachable_.erase(member->id);
  actions_.push(info(fmt::format("worker {} can be dialled by others, though not from here", member->name)));
  for (const auto& [version, publication] : publications_) repair(now, version);
}

void OriginCore::handle_connected(Instant, ConnId conn) {
  if (probes_.erase(conn) > 0) actions_.push(action::Close{conn});
}

void OriginCore::handle_closed(Instant now, ConnId conn, const Error& why) {
  if (const auto probed = probes_.find(conn); probed != probes_.end()) {
    Member* member = members_.find(probed->second);
    probes_.erase(probed);
    if (member == nullptr || !member->connected()) return;
    member->unreachable = true;
    unreachable_.insert(member->id);
    actions_.push(warning(fmt::format("worker {} cannot be dialled at {}:{} ({}); unless others can, it receives and "
                                      "does not forward",
                                      member->name, member->host, member->port, why.detail)));
    for (const auto& [id, other] : members_.all()) {
      if (!other.connected() || id == member->id) continue;
      ask_to_probe(other, *member);
      break;
    }
    for (const auto& [version, publication] : publications_) repair(now, version);
    return;
  }
  strangers_.erase(conn);
  uploads_.handle_closed(conn);
  if (Member* member = members_.by_conn(conn)) lose(now, *member, why.detail);
}

void OriginCore::refuse(ConnId conn, const Error& why) {
  wire::Message message;
  message.mutable_bye()->set_code(static_cast<std::uint32_t>(why.code));
  message.mutable_bye()->set_reason(why.detail.substr(0, kReasonBytesMax));
  actions_.push(action::Send{conn, std::move(message)});
  actions_.push(action::Close{conn});
  strangers_.erase(conn);
  uploads_.handle_closed(conn);
}

void OriginCore::lose(Instant now, Member& member, std::string_view why) {
  actions_.push(warning(fmt::format("lost worker {}: {}", member.name, why)));
  members_.disconnect(member);
  member.last_error = why;
  for (auto& [version, publication] : publications_) {
    publication.told.erase(member.id);
    publication.holders.erase(member.id);
    repair(now, version);
  }
  for (auto& [id, standby] : members_.all()) {
    if (!standby.connected() || !standby.standby) continue;
    standby.standby = false;
    standby.promoted = true;
    actions_.push(info(fmt::format("standby worker {} takes its place", standby.name)));
    ensure_planned(now, standby);
    break;
  }
  for (auto& [version, publication] : publications_) note_progress(now, publication);
}

void OriginCore::handle_join(Instant now, ConnId conn, const wire::Join& join) {
  const auto refuse_join = [&](Errc code, std::string detail) {
    actions_.push(warning(fmt::format("refusing worker '{}': {}", join.name().substr(0, kNameBytesMax), detail)));
    refuse(conn, fail(code, Op::kJoin, std::move(detail)));
  };
  if (join.protocol() != kProtocolVersion) {
    return refuse_join(Errc::kUnsupported, fmt::format("it speaks protocol {}, this origin {}; run the same release",
                                                       join.protocol(), kProtocolVersion));
  }
  if (join.name().empty() || join.name().size() > kNameBytesMax) {
    return refuse_join(Errc::kInvalidArgument, "its name is empty or longer than 255 bytes");
  }
  if (!config_.model_id.empty() && !join.model_id().empty() && join.model_id() != config_.model_id) {
    return refuse_join(Errc::kInvalidArgument, fmt::format("it serves model '{}', this origin publishes '{}'",
                                                           join.model_id().substr(0, kNameBytesMax), config_.model_id));
  }
  const Version installed{join.installed_version()};
  if (const auto held = holdings_.find(installed); held != holdings_.end()) {
    const Digest& ours = held->second.manifest().snapshot_digest;
    if (join.installed_digest() != std::string_view(reinterpret_cast<const char*>(ours.bytes.data()), Digest::kBytes)) {
      return refuse_join(Errc::kInvalidArgument,
                         fmt::format("its version {} is not the one that this origin published; it belongs to another "
                                     "run: empty its --state directory",
                                     installed.value));
    }
  }
  if (join.listen().port() != 0 && !is_port(join.listen().port())) {
    return refuse_join(Errc::kInvalidArgument, fmt::format("it listens on port {}, which is none", join.listen().port()));
  }
  Member& member = members_.by_name(join.name());
  if (member.connected() && member.incarnation != join.incarnation() &&
      now - member.heard_at < 2 * member.heartbeat) {
    return refuse_join(Errc::kAlreadyExists,
                       fmt::format("a worker of that name is connected from {}; give each a --name of its own", member.host));
  }
  if (member.connected()) actions_.push(action::Close{member.conn});
  members_.connect(member, conn);
  member.incarnation = join.incarnation();
  const Stranger& stranger = strangers_.at(conn);
  const std::string& given = join.listen().host();
  const bool unspecified = given.empty() || given == "0.0.0.0" || given == "::";
  member.host = unspecified ? stranger.host : given.substr(0, kNameBytesMax);
  member.port = static_cast<std::uint16_t>(join.listen().port());
  member.uplink = rate_from_wire(join.uplink_bytes_per_s());
  member.downlink = rate_from_wire(join.downlink_bytes_per_s());
  member.leaf_only = join.leaf_only() || member.port == 0;
  member.unreachable = false;
  unreachable_.erase(member.id);
  member.standby = join.standby() && !member.promoted;
  member.installed = installed;
  member.receiving = Version{join.receiving_version()};
  for (auto& [version, publication] : publications_) {
    publication.told.erase(member.id);
    publication.holders.erase(member.id);
    publication.installs_to_count = 0;
  }
  member.heard_at = now;
  const Instant silent_at = now + config_.timeouts.silence;
  silence_due_ = silence_due_ ? std::min(*silence_due_, silent_at) : silent_at;
  member.last_error.clear();
  strangers_.erase(conn);

  wire::Message message;
  message.mutable_joined()->set_peer_id(member.id.value);
  member.heartbeat = heartbeat_period();
  message.mutable_joined()->set_heartbeat_ms(static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(member.heartbeat).count()));
  message.mutable_joined()->set_latest_version(latest_.value);
  actions_.push(action::Send{conn, std::move(message)});
  actions_.push(info(fmt::format("worker {} joined as peer {} at {}:{}, on version {}", member.name, member.id.value,
                                 member.host, member.port, member.installed.value)));
  if (!member.leaf_only) probe(member);
  std::size_t asked = 0;
  for (const PeerId id : unreachable_) {
    const Member* other = members_.find(id);
    if (other == nullptr || !other->connected() || id == member.id) continue;
    ask_to_probe(member, *other);
    if (++asked == kProbesAsked) break;
  }
  resume_receiving(now, member);
  ensure_planned(now, member);
  repair_outdated(now);
}

Duration OriginCore::heartbeat_period() const {
  return std::max(config_.timeouts.heartbeat,
                  std::min(config_.timeouts.silence * 2 / 5, kHeartbeatSpacing * std::int64_t(members_.connected_count())));
}

void OriginCore::handle_message(Instant now, ConnId conn, const wire::Message& message) {
  driven_at_ = now;
  using Kind = wire::Message::KindCase;
  if (Member* member = members_.by_conn(conn)) {
    member->heard_at = now;
    switch (message.kind_case()) {
      case Kind::kHeartbeat: {
        const wire::Heartbeat& beat = message.heartbeat();
        const Version receiving{beat.receiving_version()};
        if (std::exchange(member->receiving, receiving) != receiving) {
          const auto again = publications_.find(receiving);
          if (again != publications_.end() && again->second.failed.erase(member->id) > 0) repair(now, receiving);
          repair_outdated(now);
        }
        member->chunks_verified = beat.chunks_verified();
        member->chunks_total = beat.chunks_total();
        member->receive_bytes_per_s = beat.receive_bytes_per_s();
        member->bytes_received = beat.bytes_received();
        member->bytes_sent = beat.bytes_sent();
        wire::Message ack;
        ack.mutable_heartbeat_ack();
        actions_.push(action::Send{conn, std::move(ack)});
        break;
      }
      case Kind::kInstalled: handle_installed(now, *member, message.installed()); break;
      case Kind::kInstallFailed:
        member->last_error = message.install_failed().detail().substr(0, kReasonBytesMax);
        member->failed = Version{message.install_failed().version()};
        actions_.push(warning(fmt::format("worker {} could not install version {}: {}", member->name,
                                          member->failed.value, member->last_error)));
        if (const auto failed = publications_.find(member->failed); failed != publications_.end()) {
          failed->second.failed.insert(member->id);
          repair(now, member->failed);
        }
        break;
      case Kind::kProbed: handle_probed(now, message.probed()); break;
      case Kind::kParentFault: handle_parent_fault(now, *member, message.parent_fault()); break;
      case Kind::kLeave:
        actions_.push(action::Close{conn});
        lose(now, *member, "it left: " + message.leave().reason().substr(0, kReasonBytesMax));
        break;
      default: break;
    }
    return;
  }
  switch (message.kind_case()) {
    case Kind::kJoin:
      if (strangers_.contains(conn)) handle_join(now, conn, message.join());
      break;
    case Kind::kHello:
      strangers_.erase(conn);
      if (message.hello().protocol() != kProtocolVersion) {
        return refuse(conn, fail(Errc::kUnsupported, Op::kReceive, "hello: another protocol than this origin's"));
      }
      uploads_.handle_hello(conn, {PeerId{message.hello().peer_id()}, message.hello().name().substr(0, kNameBytesMax)});
      break;
    case Kind::kSubscribe:
      if (Status s = uploads_.handle_subscribe(now, conn, message.subscribe()); !s.has_value()) {
        actions_.push(warning(s.error().message()));
        refuse(conn, s.error());
      }
      break;
    case Kind::kUnsubscribe: uploads_.handle_unsubscribe(conn, message.unsubscribe()); break;
    default:
      if (!uploads_.is_child(conn)) {
        refuse(conn, fail(Errc::kNotAllowed, Op::kReceive, "the first message is neither join nor hello"));
      }
  }
}

void OriginCore::handle_installed(Instant now, Member& member, const wire::Installed& installed) {
  const Version version{installed.version()};
  const auto found = publications_.find(version);
  if (found != publications_.end()) {
    const Digest& expected = found->second.manifest->snapshot_digest;
    const std::string_view told = installed.snapshot_digest();
    if (told != std::string_view(reinterpret_cast<const char*>(expected.bytes.data()), Digest::kBytes)) {
      actions_.push(warning(fmt::format("worker {} says that it installed version {}, but with another digest",
                                        member.name, version.value)));
      return;
    }
  }
  if (found != publications_.end() && member.installed < version && installed.seconds() > 0) {
    // Forwarding is what is scored: the relays that fed it did well.
    const Plan& plan = found->second.plan;
    const Rate rate{double(found->second.manifest->payload_bytes) / installed.seconds()};
    const auto at = std::ranges::find(plan.members, member.id) - plan.members.begin();
    for (const StripePlan& stripe : plan.stripes) {
      if (std::size_t(at) >= stripe.parents.size()) continue;
      Member* parent = members_.find(stripe.parents[std::size_t(at)]);
      if (parent != nullptr) parent->score.handle_ok(now, rate);
    }
  }
  member.installed = std::max(member.installed, version);
  member.last_error.clear();
  member.failed = kNoVersion;
  member.receiving = kNoVersion;
  if (found != publications_.end()) found->second.holders.insert(member.id);
  for (auto& [v, publication] : publications_) {
    // Who joins or is lost has everyone counted; between, an install changes the count by one.
    if (publication.installs_to_count > 0) --publication.installs_to_count;
    if (publication.installs_to_count == 0) note_progress(now, publication);
  }
  repair_outdated(now);
}

void OriginCore::handle_parent_fault(Instant now, Member& member, const wire::ParentFault& fault) {
  const PeerId parent_id{fault.parent_id()};
  Member* parent = members_.find(parent_id);
  actions_.push(warning(fmt::format("worker {} left its parent {} ({})", member.name,
                                    parent != nullptr ? parent->name : config_.name,
                                    wire::FaultKind_Name(fault.kind()))));
  const auto found = publications_.find(Version{fault.version()});
  if (parent == nullptr || parent_id == member.id || found == publications_.end()) return;
  Publication& publication = found->second;
  // Only who was meant to feed it can fail it; a child that wanders has left others of its own accord.
  const auto at = std::ranges::find(publication.plan.members, member.id) - publication.plan.members.begin();
  const bool fed_by = std::ranges::any_of(publication.plan.stripes, [&](const StripePlan& stripe) {
    return std::size_t(at) < stripe.parents.size() && stripe.parents[std::size_t(at)] == parent_id;
  });
  if (!fed_by) return;
  if (const std::optional<PeerFault> failing = failing_of(fault.kind(), *parent, member, Version{fault.version()})) {
    parent->score.handle_failed(now);
    parent->standing.handle_fault(*failing);
  } else if (fault.kind() == wire::FAULT_KIND_STARVED) {
    return;  // whoever is above it may be to blame; the child helps itself
  }
  // If most relays seem slow it is not they who are: then the plan stays, and children help themselves.
  if (2 * publication.demoted.size() >= publication.plan.members.size()) return;
  if (publication.demoted.insert(parent_id).second) repair(now, found->first);
}

void OriginCore::handle_chunk(Instant now, ConnId conn, const ChunkArrival&) {
  refuse(conn, fail(Errc::kNotAllowed, Op::kReceive, "a chunk for the origin: nobody sends it any"));
  if (Member* member = members_.by_conn(conn)) lose(now, *member, "it sent a chunk, which no worker sends to its origin");
}

void OriginCore::handle_chunk_sent(Instant now, ConnId conn) {
  driven_at_ = now;
  uploads_.handle_chunk_sent(now, conn);
}

void OriginCore::handle_payload_begun(Instant, Version, Result<RestoredPayload>) {}
void OriginCore::handle_chunk_stored(Instant, Version, ChunkIndex, Status) {}
void OriginCore::handle_finished(Instant, Version, Status) {}

// ---- time

void OriginCore::handle_timeout(Instant now) {
  const Timeouts& t = config_.timeouts;
  // After a stall of this process everybody looks silent; what they said meanwhile is still to be read.
  const bool stalled = driven_at_ && now - *driven_at_ > t.silence / 2;
  driven_at_ = now;
  if (stalled || (silence_due_ && now >= *silence_due_)) {
    silence_due_.reset();
    for (auto& [id, member] : members_.all()) {
      if (!member.connected()) continue;
      if (stalled) member.heard_at = now;
      if (now - member.heard_at < t.silence) {
        const Instant due = member.heard_at + t.silence;
        silence_due_ = silence_due_ ? std::min(*silence_due_, due) : due;
        continue;
      }
      actions_.push(action::Close{member.conn});
      lose(now, member, fmt::format("silent for {:.1f} s", to_seconds(now - member.heard_at)));
    }
  }
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    const auto& [conn, state] = *stranger++;
    if (now - state.since >= t.greeting) {
      refuse(conn, fail(Errc::kTimedOut, Op::kReceive, "a connection that said nothing after it was made"));
    }
  }
  uploads_.handle_timeout(now);
}

std::optional<Instant> OriginCore::poll_deadline() const {
  EarliestDeadline earliest;
  if (silence_due_) {
    earliest.consider(silence_due_);
    // Often enough that a time-out which comes late means a stall of this process, and not that nothing was due.
    if (driven_at_) earliest.consider(*driven_at_ + config_.timeouts.silence / 4);
  }
  // Numbered as they come: the first has waited longest.
  if (!strangers_.empty()) earliest.consider(strangers_.begin()->second.since + config_.timeouts.greeting);
  earliest.consider(uploads_.poll_deadline());
  return earliest.first();
}

}  // namespace weightcast
