// Members join, are lost, and are remembered over a restart.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/settings/nearest_name.h"
#include "base/text.h"
#include "proto/names.h"
#include "transport/core/manifest/payload_wire.h"
#include "transport/core/origin/origin_core.h"
#include "transport/core/peer_check.h"

namespace weightcast {
namespace {

// Heartbeats of all workers together come no more often than one in so long; beyond that each speaks less often.
constexpr Duration kHeartbeatSpacing = std::chrono::microseconds(200);

Rate rate_from_wire(double bytes_per_s) {
  return std::isfinite(bytes_per_s) && bytes_per_s > 0 ? Rate{bytes_per_s} : Rate{};
}

}  // namespace

void OriginCore::restore_peers(Instant now, const std::vector<PeerRecord>& records) {
  for (const PeerRecord& record : records) {
    if (record.name == config_.name) {
      rates_.restore_origin_uplink(record.uplink);
      continue;
    }
    Member& member = members_.by_name(record.name);
    member.estimates = {LinkEstimate(record.uplink), LinkEstimate(record.downlink)};
    member.score = PeerScore(record.score, now);
    member.standing = PeerStanding(record.standing);
    member.offence = record.offence;
    member.offence_by_word = record.offence_by_word;
    member.heard_at = now;
  }
  for (const PeerRecord& record : records) {
    if (record.name == config_.name) continue;
    Complaints::Author author{{}, record.voice, record.since_regained};
    for (const PeerRecord::Complaint& one : record.complaints) {
      const auto of = members_.id_of(one.of);
      if (of)
        author.complaints.push_back({*of, one.fault, one.age, one.discredited, one.parent_cleared, one.child_cleared});
    }
    faults_.restore_complaints(members_.by_name(record.name).id, std::move(author));
  }
}

std::vector<PeerRecord> OriginCore::peer_records(Instant now) const {
  std::vector<PeerRecord> records;
  for (const auto& [id, member] : members_.all()) {
    if (member.forgotten) continue;
    const Complaints::Author author = faults_.complaints_record(id);
    PeerRecord& record = records.emplace_back(PeerRecord{member.name,
                                                         member.score.record(now),
                                                         member.standing.record(),
                                                         member.offence,
                                                         member.offence_by_word,
                                                         member.estimates.uplink.rate(),
                                                         member.estimates.downlink.rate(),
                                                         {},
                                                         author.voice,
                                                         author.since_regained});
    for (const Complaints::Complaint& one : author.complaints) {
      const Member* of = members_.find(one.parent);
      if (of != nullptr && !of->forgotten) {
        record.complaints.push_back(
            {of->name, one.fault, one.age, one.discredited, one.parent_cleared, one.child_cleared});
      }
    }
  }
  if (rates_.origin_uplink().known()) {
    PeerRecord& own = records.emplace_back();
    own.name = config_.name;
    own.uplink = rates_.origin_uplink().rate();
  }
  return records;
}

void OriginCore::drop(ConnId conn) {
  actions_.push(action::Close{conn});
  forget(conn);
}

void OriginCore::lose(Instant now, Member& member, std::string_view why, bool left) {
  std::string text = fmt::format("lost worker {}: {}", member.name, why);
  actions_.push(left ? action::info(std::move(text)) : action::warning(std::move(text)));
  const bool served = member.active() && member.has_received();
  members_.disconnect(member);
  rates_.handle_lost(member.id);
  member.last_error = why.substr(0, kReasonBytesMax);
  publications_.handle_lost(now, member);
  if (Member* stand_in = standby_places_.handle_lost(member, served)) {
    actions_.push(action::info(fmt::format("standby worker {} takes its place", stand_in->name)));
    publications_.handle_activated(now, *stand_in);
  }
  // The sooner the more there are, and not for each of many that are lost at once.
  const bool many = members_.lost_count() % Membership::kStrangersMax == 0;
  const Instant due = now + (many ? Duration::zero() : Membership::kKeepStranger);
  forget_due_ = forget_due_ ? std::min(*forget_due_, due) : due;
}

Result<Member*> OriginCore::known_worker(std::string_view name) {
  if (const auto id = members_.id_of(std::string(name)); id && !members_.find(*id)->forgotten)
    return members_.find(*id);
  std::vector<std::string_view> names;
  for (const auto& [known, member] : members_.all()) {
    if (!member.forgotten) names.push_back(member.name);
  }
  const std::string_view nearest = nearest_name(name, names);
  return fail(Errc::kNotFound, Op::kPlan,
              fmt::format("'{}' is no worker that this origin has heard of{}", printable(name),
                          names.empty()     ? "; it has heard of none"
                          : nearest.empty() ? "; 'weightcast status' lists them"
                                            : fmt::format("; the nearest is '{}'", printable(nearest))));
}

Status OriginCore::forget_worker(Instant now, std::string_view name) {
  WC_ASSIGN(Member* const member, known_worker(name));
  if (member->connected()) {
    return fail(Errc::kBusy, Op::kPlan,
                fmt::format("worker {} is connected; stop its daemon first, or revoke its keys", member->name));
  }
  actions_.push(action::info(fmt::format("worker {} is forgotten", member->name)));
  member->forgotten = true;
  ++forgotten_count_;
  forget_due_ = now;
  forget_lost(now);
  return {};
}

Status OriginCore::set_serving(Instant now, std::string_view name, bool serves) {
  WC_ASSIGN(Member* const known, known_worker(name));
  Member& member = *known;
  if (!standby_places_.handle_command(member, serves)) return {};
  actions_.push(action::info(fmt::format("worker {} {}", member.name, serves ? "is activated" : "is released")));
  if (!member.connected()) return {};
  if (serves) {
    publications_.handle_activated(now, member);
  } else {
    publications_.handle_released(now, member);
  }
  return {};
}

void OriginCore::forget_lost(Instant now) {
  if (!forget_due_ || now < *forget_due_) return;
  if (const auto settled_at = publications_.settle_due()) {
    forget_due_ = settled_at;  // until then plans have them
    return;
  }
  const std::set<PeerId> planned = publications_.planned();
  forget_due_ = members_.forget_lost(now, [&](PeerId id) { return !planned.contains(id); });
  reachability_.forget_lost();
  standby_places_.forget_lost();
}

PeerId OriginCore::child_id(const wire::Hello& hello) const {
  return members_.id_of(hello.name()).value_or(PeerId{hello.peer_id()});
}

Result<std::uint32_t> OriginCore::check_join(Instant now, ConnId conn, const wire::Join& join) {
  const Result<std::uint32_t> protocol =
      agree_protocol(protocols_spoken_, protocol_range(join.protocol(), join.protocol_max()), "origin");
  if (!protocol.has_value()) return fail(protocol.error().code, Op::kJoin, protocol.error().detail);
  if (const Status name = check_node_name(join.name()); !name.has_value()) {
    return fail(Errc::kInvalidArgument, Op::kJoin, name.error().detail);
  }
  const std::optional<PeerIdentity>& peer = unidentified_.peer(conn);
  if (peer) WC_TRY(check_speaks_as(*peer, Role::kWorker, join.name(), "join"));
  if (join.name() == config_.name) {
    return fail(Errc::kAlreadyExists, Op::kJoin, "that is this origin's own name; give the worker another --name");
  }
  if (const Status host = check_host(join.listen().host()); !host.has_value()) {
    return fail(Errc::kInvalidArgument, Op::kJoin, host.error().detail);
  }
  if (!config_.model_id.empty() && !join.model_id().empty() && join.model_id() != config_.model_id) {
    return fail(Errc::kInvalidArgument, Op::kJoin,
                fmt::format("it serves model '{}', this origin publishes '{}'",
                            join.model_id().substr(0, kNameBytesMax), config_.model_id));
  }
  const Version installed{join.installed_version()};
  if (installed > kVersionMax) {
    return fail(Errc::kInvalidArgument, Op::kJoin,
                fmt::format("it has version {} installed; versions end at {}", installed.value, kVersionMax.value));
  }
  if (join.listen().port() != 0 && !is_port(join.listen().port())) {
    return fail(Errc::kInvalidArgument, Op::kJoin,
                fmt::format("it listens on port {}; ports are 1 to 65535", join.listen().port()));
  }
  const Member& member = members_.by_name(join.name());
  if (member.connected() && peer && member.identity && member.identity->key != peer->key) {
    return fail(
        Errc::kAlreadyExists, Op::kJoin,
        fmt::format(
            "a worker of that name is connected from {} with other keys; give each a --name and keys of its own",
            member.host));
  }
  if (member.connected() && member.incarnation != join.incarnation() && now - member.heard_at < 2 * member.heartbeat) {
    return fail(Errc::kAlreadyExists, Op::kJoin,
                fmt::format("a worker of that name is connected from {}; give each a --name of its own", member.host));
  }
  return *protocol;
}

// A member that could name any host would make the origin, and other members, dial whatever it likes.
std::string OriginCore::host_of(ConnId conn, const wire::Join& join) {
  const std::string& given = join.listen().host();
  const std::string& seen = unidentified_.host(conn);
  if (given.empty() || given == "0.0.0.0" || given == "::" || given == seen) return seen;
  const std::optional<PeerIdentity>& peer = unidentified_.peer(conn);
  if (peer && std::ranges::find(peer->addresses, given) != peer->addresses.end()) return given;
  const auto allows = [&](const std::string& pattern) { return matches_pattern(pattern, given); };
  if (std::ranges::any_of(config_.addresses_allowed, allows)) return given;
  actions_.push(action::warning(fmt::format(
      "worker {} says that it listens on {}, and comes from {}: that is where others dial it. Issue its keys "
      "with --address {}, or start the origin with --allow-address {}",
      join.name(), given, seen, given, given)));
  return seen;
}

void OriginCore::register_member(Instant now, Member& member, ConnId conn, const wire::Join& join,
                                 std::uint32_t protocol) {
  members_.connect(member, conn);
  member.protocol = protocol;
  actions_.protocols().agree(conn, member.protocol);
  member.identity = unidentified_.peer(conn);
  member.incarnation = join.incarnation();
  member.host = host_of(conn, join);
  member.port = static_cast<std::uint16_t>(join.listen().port());
  member.uplink = rate_from_wire(join.uplink_bytes_per_s());
  member.downlink = rate_from_wire(join.downlink_bytes_per_s());
  member.unpack_bytes_per_s = rate_from_wire(join.unpack_bytes_per_s()).bytes_per_s;
  member.leaf_only = join.leaf_only() || member.port == 0;
  if (Member* stand_in = standby_places_.handle_joined(member, join.standby())) {
    actions_.push(action::info(fmt::format("standby worker {} steps back for {}", stand_in->name, member.name)));
    publications_.handle_released(now, *stand_in);
  }
  const RunId run{join.run_id()};
  member.other_run = run == config_.run || config_.run == kNoRun ? kNoRun : run;
  // The numbers of another run say nothing here.
  const bool ours = member.other_run == kNoRun;
  const Version installed = ours ? Version{join.installed_version()} : kNoVersion;
  if (member.installed != installed) {
    member.installed_path = CatchUpPath::kUnknown;
    member.installed_bytes = 0;
  }
  member.installed = installed;
  member.installed_digest = ours ? checksum_from_wire(join.installed_digest()) : std::nullopt;
  member.receiving = ours ? payload_from_wire(join.receiving()) : PayloadId{};
  member.assigned = {};
  member.base_unusable = ours && join.base_unusable();
  member.heard_at = now;
  member.revocations_sent = 0;
  member.heartbeat = heartbeat_period();
  member.last_error.clear();
  member.foreign = false;
  if (!ours) {
    member.last_error =
        fmt::format("its version {} is of another run, {}; it stays in use until a version of this run, {}, is there",
                    join.installed_version(), to_string(run), to_string(config_.run));
    actions_.push(action::warning(fmt::format("worker {}: {}", member.name, member.last_error)));
    return;
  }
  const Publication* here = publications_.find_version(installed);
  const bool other_bytes = here != nullptr && member.installed_digest != here->manifest()->snapshot_digest;
  member.foreign = installed > publications_.last_used() || (other_bytes && installed >= publications_.latest());
  if (member.foreign) {
    member.last_error = fmt::format(
        "its version {} is from another run, or was lost here: the latest is {}; it gets the next that is greater than "
        "its own, or "
        "empty its --state directory",
        installed.value, publications_.latest().value);
    actions_.push(action::warning(fmt::format("worker {}: {}", member.name, member.last_error)));
  } else if (other_bytes) {
    member.base_unusable = true;  // patches from here are made from other bytes
    actions_.push(action::warning(fmt::format("worker {}: its version {} is from another run; it gets version {} whole",
                                              member.name, installed.value, publications_.latest().value)));
  }
}

void OriginCore::note_stranger(ConnId conn, std::string what) {
  const std::optional<PeerIdentity>& peer = unidentified_.peer(conn);
  if (!peer || peer->role != Role::kWorker) return;
  if (const auto who = members_.id_of(peer->name)) faults_.note_offence(*who, std::move(what));
}

// One whose connection was lost asks before it has joined again: now and then that is nobody's fault.
void OriginCore::handle_placeless(Instant now, ConnId conn) {
  const std::string name = uploads_.name_of(conn);
  if (!check_node_name(name).has_value()) return;  // which only who has no keys can say
  Member& member = members_.by_name(name);
  if (!member.connected() && !forget_due_) forget_due_ = now + Membership::kKeepStranger;
  if (!member.connected() && member.heard_at == Instant{}) member.heard_at = now;
  if (member.strays.spend(now)) return;
  faults_.note_offence(member.id, "asks again and again for what it has no place for in any plan");
}

void OriginCore::note_greedy() {
  for (const auto& [name, payload] : uploads_.take_greedy()) {
    const auto id = members_.id_of(name);
    if (!id) continue;
    faults_.note_offence(
        *id, fmt::format("has taken {} copies of {} from the origin", Uploads::kCopiesMax, to_string(payload)));
  }
}

void OriginCore::note_impostor(ConnId conn, const std::string& name) {
  const std::optional<PeerIdentity>& peer = unidentified_.peer(conn);
  if (!peer || peer->name == name) return;
  note_stranger(conn, fmt::format("tried to join as {}", printable(cut_text(name, kNameBytesMax))));
}

void OriginCore::handle_join(Instant now, ConnId conn, const wire::Join& join) {
  const Result<std::uint32_t> protocol = check_join(now, conn, join);
  if (!protocol.has_value()) {
    note_impostor(conn, join.name());
    const Error& why = protocol.error();
    const Refusal reason = why.op == Op::kVerify              ? Refusal::kIdentity
                           : why.code == Errc::kAlreadyExists ? Refusal::kNameTaken
                                                              : Refusal::kMessage;
    return refuse(conn, why, reason);
  }
  Member& member = members_.by_name(join.name());
  if (!member.joins.spend(now)) {
    faults_.note_offence(member.id, "joins again and again");
    return close(conn, fail(Errc::kNotAllowed, Op::kJoin, "it joins too often; wait some seconds"));
  }
  if (member.connected()) drop(member.conn);
  rates_.handle_lost(member.id);  // what was sent on another connection is not answered on this one
  member.forgotten = false;
  register_member(now, member, conn, join, *protocol);
  unidentified_.erase(conn);
  const Instant silent_at = now + config_.timeouts.silence;
  if (!silence_due_) watched_at_ = now;
  silence_due_ = silence_due_ ? std::min(*silence_due_, silent_at) : silent_at;

  wire::Message message;
  message.mutable_joined()->set_peer_id(member.id.value);
  message.mutable_joined()->set_heartbeat_ms(
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(member.heartbeat).count()));
  message.mutable_joined()->set_latest_version(publications_.latest().value);
  message.mutable_joined()->set_protocol(member.protocol);
  if (member.other_run == kNoRun && !member.foreign) message.mutable_joined()->set_run_id(config_.run.value);
  actions_.push(action::Send{conn, std::move(message)});
  actions_.push(
      action::info(fmt::format("worker {} joined as peer {} at {}:{}, on version {}, by protocol {}", member.name,
                               member.id.value, member.host, member.port, member.installed.value, member.protocol)));
  reachability_.handle_joined(now, member);
  std::vector<PayloadId> held;
  if (member.other_run != kNoRun) return publications_.handle_joined_of_other_run(now, member);
  for (int i = 0; i < std::min(join.held_size(), int(kHeldMax)); ++i) held.push_back(payload_from_wire(join.held(i)));
  publications_.handle_joined(now, member, held);
  rates_.consider(now, member);
  probe_rates(now);
}

Duration OriginCore::heartbeat_period() const {
  return std::max(config_.timeouts.heartbeat, std::min(config_.timeouts.silence * 2 / 5,
                                                       kHeartbeatSpacing * std::int64_t(members_.connected_count())));
}

}  // namespace weightcast
