#include "transport/core/origin_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "transport/core/payload_wire.h"

namespace weightcast {
namespace {

constexpr std::size_t kMissingNamesMax = 8;
// Publications whose plans are still looked after though nobody needs them.
constexpr std::size_t kPublicationsMax = 8;
// Versions whose times are remembered.
constexpr std::size_t kProgressMax = 8;
// Old versions beyond those kept that stay because workers are still receiving them.
constexpr std::size_t kReceivedVersionsMax = 2;
// How many of those whom the origin cannot dial a new worker is asked to try.
constexpr std::size_t kProbesAsked = 16;
// Heartbeats of all workers together come no more often than one in so long; beyond that each speaks less often.
constexpr Duration kHeartbeatSpacing = std::chrono::microseconds(200);

action::Log info(std::string text) { return {action::Log::Level::kInfo, std::move(text)}; }
action::Log warning(std::string text) { return {action::Log::Level::kWarning, std::move(text)}; }

PlanMember plan_member(const Member& member) { return {member.id, member.uplink, member.downlink, member.can_relay()}; }

/// What a child's complaint says about its parent's forwarding; nothing if it need not be its failing.
std::optional<PeerFault> failing_of(wire::FaultKind kind, const Member& parent, const Member& child,
                                    PayloadId payload) {
  switch (kind) {
    case wire::FAULT_KIND_CORRUPT: return PeerFault::kCorrupt;
    case wire::FAULT_KIND_SLOW: return PeerFault::kSlow;
    case wire::FAULT_KIND_NOT_AVAILABLE: return std::nullopt;
    case wire::FAULT_KIND_STARVED: {
      // By its own word it has more than it passes on.
      const bool has_more = parent.installed == payload.version ||
                            (parent.receiving == payload && parent.chunks_verified > child.chunks_verified);
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
  Holding holding(manifest);
  holding.restore(chunk_digests, ChunkSet(manifest->chunk_count(), true));
  if (!holding.complete()) return;
  holdings_.emplace(manifest->id(), std::move(holding));
  if (manifest->kind != PayloadKind::kFull) return;
  progress_[manifest->version];
  latest_ = std::max(latest_, manifest->version);
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

void OriginCore::end(Version version) {
  Progress& progress = progress_[version];
  if (progress.ended || !progress.announced) return;
  progress.ended = true;
  std::set<PeerId> planned;
  for (const auto& [payload, publication] : publications_) {
    if (payload.version == version) planned.insert(publication.plan.members.begin(), publication.plan.members.end());
  }
  for (const PeerId id : planned) {
    Member* member = members_.find(id);
    const Standing before = member->standing.standing();
    member->standing.handle_publication_end(member->installed >= version);
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
  for (const auto& [payload, holding] : holdings_) uploads_.handle_gone(payload, reason);
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
    return fail(
        Errc::kAlreadyExists, Op::kPublish,
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
  const Version previous = std::exchange(latest_, version);

  for (const auto& [older, progress] : progress_) end(older);
  progress_[version] = {};
  progress_[version].announced = true;
  progress_[version].started_at = started_at;
  while (progress_.size() > kProgressMax) progress_.erase(progress_.begin());
  std::erase_if(unreachable_, [&](PeerId id) { return !members_.find(id)->connected(); });
  members_.forget_lost(now, [&](PeerId id) {
    return std::ranges::none_of(publications_,
                                [&](const auto& p) { return std::ranges::count(p.second.plan.members, id) > 0; });
  });
  // Also when nobody needs it now: a worker that comes back later can be caught up by what is stored.
  if (const PayloadId step{version, previous}; previous != kNoVersion && can_make(step)) make_patch(step);
  assign_all(now);
  uploads_.handle_known(now, version);
  note_progress(now, version, progress_.at(version));
  forget_old_versions();
  repair_outdated(now);
}

// ---- who gets what

bool OriginCore::can_make(PayloadId payload) const {
  if (making_.contains(payload)) return true;
  return config_.patches && !useless_.contains(payload) && holdings_.contains(payload.base) &&
         holdings_.contains(payload.version);
}

void OriginCore::make_patch(PayloadId payload) {
  if (holdings_.contains(payload) || !making_.insert(payload).second) return;
  actions_.push(action::MakePatch{payload});
}

void OriginCore::handle_patch_begun(Instant now, std::shared_ptr<const Manifest> manifest) {
  const PayloadId payload = manifest->id();
  if (!making_.contains(payload)) return;
  WC_CHECK(manifest->open);
  holdings_.emplace(payload, Holding(std::move(manifest)));
  uploads_.handle_known(now, payload);
  assign_all(now);
  repair_outdated(now);
}

void OriginCore::handle_patch_grown(Instant now, MadePatch grown) {
  const PayloadId payload = grown.manifest->id();
  if (making_.contains(payload) && holdings_.contains(payload)) grow(now, grown);
}

void OriginCore::grow(Instant now, const MadePatch& grown) {
  const PayloadId payload = grown.manifest->id();
  Holding& holding = holdings_.at(payload);
  wire::Message message;
  *message.mutable_growth() = growth_between(holding.manifest(), *grown.manifest);
  holding.grow(grown.manifest);
  holding.restore(grown.chunk_digests, ChunkSet(grown.manifest->chunk_count(), true));
  WC_CHECK(holding.verified().complete());
  if (const auto publication = publications_.find(payload); publication != publications_.end()) {
    publication->second.manifest = grown.manifest;
    for (const auto& [id, _] : publication->second.told) actions_.push(action::Send{members_.find(id)->conn, message});
  }
  uploads_.handle_known(now, payload);
}

void OriginCore::withdraw(PayloadId payload) {
  if (holdings_.erase(payload) == 0) return;
  constexpr std::string_view kWhy = "it could not be made to its end";
  uploads_.handle_gone(payload, kWhy);
  wire::Message message;
  set_payload(*message.mutable_not_available(), payload);
  message.mutable_not_available()->set_reason(std::string(kWhy));
  const auto publication = publications_.extract(payload);
  if (publication.empty()) return;
  for (const auto& [id, _] : publication.mapped().told) actions_.push(action::Send{members_.find(id)->conn, message});
  for (auto& [id, member] : members_.all()) {
    if (member.assigned == payload) member.assigned = {};
  }
}

void OriginCore::handle_patch_made(Instant now, PayloadId payload, Result<MadePatch> made) {
  if (making_.erase(payload) == 0) return;
  if (made.has_value()) {
    WC_CHECK(!made->manifest->open && made->manifest->id() == payload);
    actions_.push(info(fmt::format("patch from version {} to {}: {}", payload.base.value, payload.version.value,
                                   format_bytes(made->manifest->payload_bytes))));
    if (holdings_.contains(payload)) {
      grow(now, *made);
    } else {
      Holding holding(made->manifest);
      holding.restore(made->chunk_digests, ChunkSet(made->manifest->chunk_count(), true));
      WC_CHECK(holding.complete());
      holdings_.emplace(payload, std::move(holding));
      uploads_.handle_known(now, payload);
    }
  } else {
    withdraw(payload);
    useless_.insert(payload);
    std::string text = fmt::format("no patch from version {} to {}: {}", payload.base.value, payload.version.value,
                                   made.error().detail);
    actions_.push(made.error().code == Errc::kTooLarge ? info(std::move(text)) : warning(std::move(text)));
  }
  assign_all(now);
  forget_old_versions();
  repair_outdated(now);
}

OriginCore::Publication& OriginCore::publication_of(PayloadId payload) {
  const auto [publication, added] = publications_.try_emplace(payload);
  if (added) publication->second.manifest = holdings_.at(payload).shared_manifest();
  return publication->second;
}

const OriginCore::Publication* OriginCore::main_publication(Version version) const {
  const Publication* most = nullptr;
  for (const auto& [payload, publication] : publications_) {
    if (payload.version != version) continue;
    if (most == nullptr || publication.plan.members.size() >= most->plan.members.size()) most = &publication;
  }
  return most;
}

bool OriginCore::in_use(PayloadId payload) const {
  return uploads_.wanted(payload) || std::ranges::any_of(members_.all(), [&](const auto& entry) {
           const Member& member = entry.second;
           return member.active() && member.installed < payload.version &&
                  (member.assigned == payload || member.receiving == payload);
         });
}

void OriginCore::assign_all(Instant now) {
  std::vector<Member*> all;
  for (auto& [id, member] : members_.all()) all.push_back(&member);
  assign(now, all);
}

void OriginCore::assign(Instant now, const std::vector<Member*>& members) {
  if (latest_ == kNoVersion) return;
  std::map<PayloadId, std::vector<Member*>> takers;
  for (Member* member : members) {
    if (!member->active() || member->installed >= latest_) continue;
    Progress& progress = progress_[latest_];
    if (!std::exchange(progress.announced, true)) progress.started_at = now;
    const CatchUp way = choose_payload(holdings_, {member->installed, latest_, !member->base_unusable,
                                                   config_.anchor_interval, [&](PayloadId p) { return can_make(p); }});
    if (way.make) {
      make_patch(way.next);
    } else if (member->assigned != way.next) {
      takers[way.next].push_back(member);
    }
  }
  for (const auto& [payload, some] : takers) take_in(now, payload, some);
}

Way OriginCore::way_of(PayloadId payload, const Member& member) const {
  if (!payload.is_patch()) return Way::kFull;
  // The last of several patches in turn is one of them, too.
  const bool goes_on =
      member.assigned_way == Way::kChain && member.installed < latest_ && payload.base == member.installed;
  if (payload.version < latest_ || goes_on) return Way::kChain;
  const bool over_others = std::ranges::any_of(holdings_, [&](const auto& held) {
    return held.first.version > payload.base && held.first.version < payload.version;
  });
  return over_others ? Way::kFolded : Way::kDirect;
}

void OriginCore::take_in(Instant now, PayloadId payload, const std::vector<Member*>& takers) {
  Publication& publication = publication_of(payload);
  std::set<PayloadId> left;
  for (Member* member : takers) {
    left.insert(std::exchange(member->assigned, payload));
    member->assigned_way = way_of(payload, *member);
    publication.failed.erase(member->id);
    publication.told.erase(member->id);  // told by announce(), with the manifest
  }
  repair(now, payload);
  const PlanIndex index(publication.plan);
  for (const Member* member : takers) announce(publication, *member, assignment_for(publication, index, *member));
  for (const PayloadId other : left) {
    if (other.version == latest_ && publications_.contains(other)) repair(now, other);
  }
  if (takers.size() < publication.plan.members.size()) return;
  actions_.push(info(fmt::format(
      "publishing version {}{}: {} to {} workers by {}, chunks of {}, predicted {:.3f} s", payload.version.value,
      payload.is_patch() ? fmt::format(" on {}", payload.base.value) : std::string(),
      format_bytes(publication.manifest->planned_bytes()), takers.size(), to_string(publication.plan.topology),
      format_bytes(publication.manifest->chunk_bytes), to_seconds(publication.plan.predicted_t100))));
}

void OriginCore::announce(Publication& publication, const Member& member, wire::Assignment assignment) {
  publication.told[member.id] = assignment.SerializeAsString();
  assignment.set_epoch(epoch_.value);
  wire::Message message;
  *message.mutable_announce()->mutable_manifest() = manifest_to_wire(*publication.manifest);
  *message.mutable_announce()->mutable_assignment() = std::move(assignment);
  actions_.push(action::Send{member.conn, std::move(message)});
}

void OriginCore::repair(Instant now, PayloadId payload) {
  Publication& publication = publications_.at(payload);
  PlanRequest request = plan_request(now, publication.manifest->planned_bytes(), &publication);
  request.chunk_bytes = publication.manifest->chunk_bytes;
  for (PlanMember& m : request.members) m.can_relay = m.can_relay && !publication.demoted.contains(m.id);
  publication.plan = publication.plan.members.empty() ? make_plan(request) : repair_plan(publication.plan, request);
  ++epoch_;
  const PlanIndex index(publication.plan);
  for (const PeerId id : publication.plan.members) {
    const Member& member = *members_.find(id);
    if (!member.connected() || member.installed >= payload.version) continue;
    const auto told = publication.told.find(id);
    if (told == publication.told.end()) continue;  // it was told of another payload, or will be told of this one
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
  set_payload(assignment, publication.manifest->id());
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

void OriginCore::resume_receiving(Instant now, Member& member) {
  const PayloadId payload = member.receiving;
  if (payload.version == kNoVersion || payload == member.assigned) return;
  if (!holdings_.contains(payload) || !member.active()) {
    wire::Message message;
    set_payload(*message.mutable_not_available(), payload);
    message.mutable_not_available()->set_reason("the origin plans newer versions only");
    actions_.push(action::Send{member.conn, std::move(message)});
    return;
  }
  Publication& publication = publication_of(payload);
  publication.failed.erase(member.id);
  publication.told.insert_or_assign(member.id, std::string());  // so that repair() tells it
  repair(now, payload);
  if (!payload.is_patch()) return;
  // Whether it had come to its end when the member was last told is not known.
  announce(publication, member, assignment_for(publication, PlanIndex(publication.plan), member));
}

bool OriginCore::takes_part(const Publication& publication, const Member& member) const {
  const PayloadId payload = publication.manifest->id();
  if (!member.active() || publication.failed.contains(member.id)) return false;
  if (publication.holders.contains(member.id)) return true;
  if (member.installed >= payload.version) return false;
  if (member.assigned == payload) return true;
  if (!publication.told.contains(member.id)) return false;
  return member.receiving == payload || member.receiving == PayloadId{};
}

void OriginCore::repair_outdated(Instant now) {
  for (auto& [payload, publication] : publications_) {
    if (payload.version == latest_) continue;  // take_in() sees to those
    const auto& planned = publication.plan.members;
    const auto taking =
        std::ranges::count_if(members_.all(), [&](const auto& m) { return takes_part(publication, m.second); });
    const bool same = std::size_t(taking) == planned.size() && std::ranges::all_of(planned, [&](PeerId id) {
                        return takes_part(publication, *members_.find(id));
                      });
    if (!same) repair(now, payload);
  }
}

void OriginCore::note_progress(Instant now, Version version, Progress& progress) {
  if (!progress.announced || progress.t100) return;
  std::uint32_t active = 0, installed = 0;
  for (const auto& [id, member] : members_.all()) {
    if (!member.active()) continue;
    ++active;
    if (member.installed >= version) ++installed;
  }
  if (active == 0) return;
  const Duration elapsed = now - progress.started_at;
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
  note(progress.t50, 0.5);
  note(progress.t90, 0.9);
  note(progress.t100, 1.0);
  progress.installs_to_count = next;
  if (progress.t100) end(version);
}

std::optional<PublicationProgress> OriginCore::progress(Version version) const {
  const auto found = progress_.find(version);
  if (found == progress_.end()) return std::nullopt;
  PublicationProgress progress;
  progress.version = version;
  progress.t50 = found->second.t50;
  progress.t90 = found->second.t90;
  progress.t100 = found->second.t100;
  const Publication* publication = main_publication(version);
  if (publication != nullptr) {
    progress.kind = publication->manifest->kind;
    progress.payload_bytes = publication->manifest->planned_bytes();
    progress.topology = publication->plan.topology;
    progress.predicted = publication->plan.predicted_t100;
  } else if (const auto full = holdings_.find(version); full != holdings_.end()) {
    progress.payload_bytes = full->second.manifest().payload_bytes;
  }
  progress.undecided =
      publication == nullptr && std::ranges::any_of(making_, [&](PayloadId p) { return p.version == version; });
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
  const Publication* publication = main_publication(latest_);
  return publication == nullptr ? nullptr : &publication->plan;
}

void OriginCore::forget_old_versions() {
  const std::set<PayloadId> chain = useful_chain(holdings_, latest_, config_.anchor_interval);
  // Until the last link is made, it is not known which of the others lead anywhere.
  const bool chain_open = std::ranges::any_of(making_, [&](PayloadId p) { return p.version == latest_; });
  std::size_t newer = 0;  // full payloads met on the way from the newest to the oldest
  std::vector<PayloadId> old;
  for (auto held = holdings_.rbegin(); held != holdings_.rend(); ++held) {
    const PayloadId payload = held->first;
    bool keep = false;
    if (payload.is_patch()) {
      keep = chain_open || payload.version == latest_ || making_.contains(payload) || chain.contains(payload) ||
             in_use(payload);
    } else {
      const bool compared = std::ranges::any_of(
          making_, [&](PayloadId p) { return p.base == payload.version || p.version == payload.version; });
      keep = newer < config_.versions_kept || compared ||
             (newer < config_.versions_kept + kReceivedVersionsMax && in_use(payload));
      if (keep) ++newer;
    }
    if (!keep) old.push_back(payload);
  }
  for (const PayloadId payload : old) {
    uploads_.handle_gone(payload, "the origin keeps newer versions only");
    holdings_.erase(payload);
  }
  std::erase_if(useless_, [&](PayloadId p) { return p.version != latest_; });
  for (auto publication = publications_.begin();
       publications_.size() > kPublicationsMax && publication != publications_.end();) {
    const bool keep = publication->first.version == latest_ || in_use(publication->first);
    publication = keep ? std::next(publication) : publications_.erase(publication);
  }
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
  for (const auto& [payload, publication] : publications_) repair(now, payload);
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
    actions_.push(
        warning(fmt::format("worker {} cannot be dialled at {}:{} ({}); unless others can, it receives and "
                            "does not forward",
                            member->name, member->host, member->port, why.detail)));
    for (const auto& [id, other] : members_.all()) {
      if (!other.connected() || id == member->id) continue;
      ask_to_probe(other, *member);
      break;
    }
    for (const auto& [payload, publication] : publications_) repair(now, payload);
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
  member.assigned = {};
  for (auto& [payload, publication] : publications_) {
    publication.told.erase(member.id);
    publication.holders.erase(member.id);
    repair(now, payload);
  }
  for (auto& [id, standby] : members_.all()) {
    if (!standby.connected() || !standby.standby) continue;
    standby.standby = false;
    standby.promoted = true;
    actions_.push(info(fmt::format("standby worker {} takes its place", standby.name)));
    assign(now, {&standby});
    break;
  }
  for (auto& [version, progress] : progress_) note_progress(now, version, progress);
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
    return refuse_join(Errc::kInvalidArgument,
                       fmt::format("it listens on port {}, which is none", join.listen().port()));
  }
  Member& member = members_.by_name(join.name());
  if (member.connected() && member.incarnation != join.incarnation() && now - member.heard_at < 2 * member.heartbeat) {
    return refuse_join(
        Errc::kAlreadyExists,
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
  if (member.installed != installed) {
    member.installed_way = Way::kUnknown;
    member.installed_bytes = 0;
  }
  member.installed = installed;
  member.receiving = {Version{join.receiving_version()}, Version{join.receiving_base_version()}};
  member.assigned = {};
  member.base_unusable = join.base_unusable();
  for (auto& [payload, publication] : publications_) {
    publication.told.erase(member.id);
    publication.holders.erase(member.id);
  }
  for (auto& [version, progress] : progress_) progress.installs_to_count = 0;
  for (int i = 0; i < std::min(join.held_size(), int(kHeldMax)); ++i) {
    const PayloadId payload = payload_of(join.held(i));
    if (holdings_.contains(payload)) publication_of(payload).holders.insert(member.id);
  }
  member.heard_at = now;
  const Instant silent_at = now + config_.timeouts.silence;
  silence_due_ = silence_due_ ? std::min(*silence_due_, silent_at) : silent_at;
  member.last_error.clear();
  strangers_.erase(conn);

  wire::Message message;
  message.mutable_joined()->set_peer_id(member.id.value);
  member.heartbeat = heartbeat_period();
  message.mutable_joined()->set_heartbeat_ms(
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(member.heartbeat).count()));
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
  assign(now, {&member});
  resume_receiving(now, member);
  repair_outdated(now);
}

Duration OriginCore::heartbeat_period() const {
  return std::max(config_.timeouts.heartbeat, std::min(config_.timeouts.silence * 2 / 5,
                                                       kHeartbeatSpacing * std::int64_t(members_.connected_count())));
}

void OriginCore::handle_message(Instant now, ConnId conn, const wire::Message& message) {
  driven_at_ = now;
  using Kind = wire::Message::KindCase;
  if (Member* member = members_.by_conn(conn)) {
    member->heard_at = now;
    switch (message.kind_case()) {
      case Kind::kHeartbeat: {
        const wire::Heartbeat& beat = message.heartbeat();
        const PayloadId receiving{Version{beat.receiving_version()}, Version{beat.receiving_base_version()}};
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
      case Kind::kInstallFailed: handle_install_failed(now, *member, message.install_failed()); break;
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

void OriginCore::handle_install_failed(Instant now, Member& member, const wire::InstallFailed& failed) {
  const PayloadId payload = payload_of(failed);
  member.last_error = failed.detail().substr(0, kReasonBytesMax);
  member.failed = payload.version;
  actions_.push(warning(fmt::format("worker {} could not install version {}: {}", member.name, payload.version.value,
                                    member.last_error)));
  if (const auto found = publications_.find(payload); found != publications_.end()) {
    found->second.failed.insert(member.id);
    repair(now, payload);
  }
  if (!payload.is_patch() || !asks_for_full(static_cast<Errc>(failed.code()))) return;
  member.base_unusable = true;
  if (member.assigned == payload) member.assigned = {};
  assign(now, {&member});
}

void OriginCore::handle_installed(Instant now, Member& member, const wire::Installed& installed) {
  const Version version{installed.version()};
  const auto found = publications_.find(payload_of(installed));
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
  if (version > member.installed) {
    member.base_unusable = false;
    const bool as_assigned = found != publications_.end() && member.assigned == found->first;
    member.installed_way = as_assigned ? member.assigned_way : Way::kUnknown;
    member.installed_bytes = as_assigned ? found->second.manifest->payload_bytes : 0;
    if (version >= latest_) member.assigned_way = Way::kUnknown;
  }
  member.installed = std::max(member.installed, version);
  member.last_error.clear();
  member.failed = kNoVersion;
  member.receiving = {};
  if (found != publications_.end()) found->second.holders.insert(member.id);
  for (auto& [v, progress] : progress_) {
    // Who joins or is lost has everyone counted; between, an install changes the count by one.
    if (progress.installs_to_count > 0) --progress.installs_to_count;
    if (progress.installs_to_count == 0) note_progress(now, v, progress);
  }
  assign(now, {&member});
  forget_old_versions();
  repair_outdated(now);
}

void OriginCore::handle_parent_fault(Instant now, Member& member, const wire::ParentFault& fault) {
  const PeerId parent_id{fault.parent_id()};
  Member* parent = members_.find(parent_id);
  actions_.push(
      warning(fmt::format("worker {} left its parent {} ({})", member.name,
                          parent != nullptr ? parent->name : config_.name, wire::FaultKind_Name(fault.kind()))));
  const auto found = publications_.find(payload_of(fault));
  if (parent == nullptr || parent_id == member.id || found == publications_.end()) return;
  Publication& publication = found->second;
  // Only who was meant to feed it can fail it; a child that wanders has left others of its own accord.
  const auto at = std::ranges::find(publication.plan.members, member.id) - publication.plan.members.begin();
  const bool fed_by = std::ranges::any_of(publication.plan.stripes, [&](const StripePlan& stripe) {
    return std::size_t(at) < stripe.parents.size() && stripe.parents[std::size_t(at)] == parent_id;
  });
  if (!fed_by) return;
  if (fault.kind() == wire::FAULT_KIND_SLOW) {
    // A slow edge may be slow at either end. One who fails its own children is no witness, and one without children
    // needs a second one: it has helped itself, and nobody waits behind it.
    auto& witnesses = publication.called_slow[parent_id];
    witnesses.insert(member.id);
    const bool relays = std::ranges::any_of(publication.plan.stripes, [&](const StripePlan& stripe) {
      return std::ranges::count(stripe.parents, member.id) > 0;
    });
    if (publication.demoted.contains(member.id) || (!relays && witnesses.size() < 2)) return;
  }
  if (const std::optional<PeerFault> failing = failing_of(fault.kind(), *parent, member, payload_of(fault))) {
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
  if (Member* member = members_.by_conn(conn))
    lose(now, *member, "it sent a chunk, which no worker sends to its origin");
}

void OriginCore::handle_chunk_sent(Instant now, ConnId conn) {
  driven_at_ = now;
  uploads_.handle_chunk_sent(now, conn);
}

void OriginCore::handle_payload_begun(Instant, PayloadId, Result<RestoredPayload>) {}
void OriginCore::handle_chunk_stored(Instant, PayloadId, ChunkIndex, Status) {}
void OriginCore::handle_finished(Instant, PayloadId, Status) {}

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
