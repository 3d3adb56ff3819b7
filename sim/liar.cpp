#include "sim/liar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "proto/limits.h"
#include "sim/stand_ins.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast::sim {
namespace {

constexpr Duration kActEvery = std::chrono::milliseconds(200);
// Of what a liar floods others with, each time that it acts.
constexpr int kFloodMessages = 20;
constexpr int kFloodMessagesOfAll = 200;  // of one whose share is 1
// Children and the origin need some seconds to find out.
constexpr Duration kWithheldFor = std::chrono::seconds(5);
constexpr std::uint32_t kAccusations = 5;
constexpr std::size_t kFloodConns = 40;
// On so many of these it says hello, and takes the newest payload again and again. In this world connections share an
// uplink, and not members as in a Pacer.
constexpr std::size_t kGreedyConns = 4;

constexpr std::array kBlameKinds{wire::FAULT_KIND_CLOSED,        wire::FAULT_KIND_SLOW,    wire::FAULT_KIND_CORRUPT,
                                 wire::FAULT_KIND_NOT_AVAILABLE, wire::FAULT_KIND_STARVED, wire::FAULT_KIND_SILENT,
                                 wire::FAULT_KIND_WAITING};

}  // namespace

std::string to_text(const LiarOptions& liar) {
  std::string text = fmt::format("worker {}", liar.node);
  for (const Lie lie : liar.lies) text += fmt::format(" {}", to_string(lie));
  return text +
         fmt::format(" (share {:.2f}, pace {:.3f} s, stripes of {}, after {} chunks, the last {}, accomplice of {})",
                     liar.share, to_seconds(liar.pace), liar.stripes_of, liar.chunks_before, liar.tail_chunks,
                     liar.accomplice_of);
}

void LyingWorker::handle_accepted(Instant now, ConnId conn, std::string_view host,
                                  const std::optional<PeerIdentity>& peer) {
  now_ = now;
  WorkerCore::handle_accepted(now, conn, host, peer);
}

void LyingWorker::handle_connected(Instant now, ConnId conn, const std::optional<PeerIdentity>& peer) {
  now_ = now;
  if (!own_conns_.contains(conn)) return WorkerCore::handle_connected(now, conn, peer);
  wire::Message message;
  if (does(Lie::kImpersonates) && random_.chance(0.5)) {
    message.mutable_hello()->set_protocol(kProtocolVersion);
    message.mutable_hello()->set_name(name_of_another());
    message.mutable_hello()->set_peer_id(static_cast<std::uint32_t>(random_.between(0, workers_)));
  } else if (does(Lie::kImpersonates) || random_.chance(0.5)) {
    wire::Join* join = message.mutable_join();
    join->set_protocol(kProtocolVersion);
    join->set_name(does(Lie::kImpersonates) ? name_of_another() : name_);
    join->set_incarnation(random_.next());
    join->mutable_listen()->set_port(kPort);
    join->mutable_listen()->set_host(host_of(static_cast<NodeIndex>(random_.between(1, workers_))));
    join->set_installed_version(random_.below(100));
    if (join->name() != name_ && at_origin_.contains(conn) && !evidence_.impersonated) evidence_.impersonated = now;
  } else if (does(Lie::kFloods) && greedy_conns_.size() < kGreedyConns) {
    greedy_conns_.insert(conn);
    message.mutable_hello()->set_protocol(kProtocolVersion);
    message.mutable_hello()->set_name(name_);
  } else {
    return;  // half open
  }
  say(conn, std::move(message));
}

void LyingWorker::handle_closed(Instant now, ConnId conn, const Error& why) {
  now_ = now;
  std::erase_if(asked_, [&](const Asked& asked) { return asked.conn == conn; });
  if (conn == origin_conn_) origin_conn_ = ConnId{};
  at_origin_.erase(conn);
  greedy_conns_.erase(conn);
  children_.erase(conn);
  withheld_since_.erase(conn);
  if (own_conns_.erase(conn) == 0) WorkerCore::handle_closed(now, conn, why);
}

void LyingWorker::handle_message(Instant now, ConnId conn, const wire::Message& message) {
  now_ = now;
  if (own_conns_.contains(conn)) return;
  if (message.has_joined()) {
    origin_conn_ = conn;
    said_to_origin_ = 0;
    joined_at_ = now;
  }
  if (message.has_hello()) children_[conn] = node_named(message.hello().name());
  if (message.has_announce()) {
    announced_ = std::exchange(announcing_, message.announce());
    assignment_ = message.announce().assignment();
  }
  if (message.has_assignment()) assignment_ = message.assignment();
  if (message.has_subscribe()) {
    asked_.push_back({conn, payload_of(message.subscribe()), message.subscribe().stripe()});
  }
  if (message.has_unsubscribe()) {
    std::erase(asked_, Asked{conn, payload_of(message.unsubscribe()), message.unsubscribe().stripe()});
    withheld_since_.erase(conn);
  }
  WorkerCore::handle_message(now, conn, message);
}

void LyingWorker::handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) {
  now_ = now;
  WorkerCore::handle_chunk(now, conn, chunk);
}

void LyingWorker::handle_timeout(Instant now) {
  now_ = now;
  WorkerCore::handle_timeout(now);
  if (!act_at_) act_at_ = now;
  if (now < *act_at_) return;
  act_at_ = now + kActEvery;
  act();
}

std::optional<Instant> LyingWorker::poll_deadline() const {
  EarliestDeadline earliest;
  earliest.consider(WorkerCore::poll_deadline());
  earliest.consider(act_at_);
  if (!held_.empty()) earliest.consider(held_.front().due);
  return earliest.first();
}

std::optional<Action> LyingWorker::poll_action() {
  damages_last_ = false;
  if (!held_.empty() && held_.front().due <= now_) {
    const Action action = held_.front().chunk;
    withheld_since_.erase(held_.front().chunk.conn);
    held_.pop_front();
    return action;
  }
  while (std::optional<Action> action = WorkerCore::poll_action()) {
    if (auto twisted = twist(std::move(*action))) return twisted;
  }
  return extra_.poll();
}

std::optional<Action> LyingWorker::twist(Action action) {
  if (auto* send = std::get_if<action::SendChunk>(&action)) return twist_chunk(*send);
  if (auto* send = std::get_if<action::Send>(&action)) twist_message(send->message);
  if (const auto* close = std::get_if<action::Close>(&action)) {
    std::erase_if(asked_, [&](const Asked& asked) { return asked.conn == close->conn; });
  }
  return action;
}

std::optional<Action> LyingWorker::twist_chunk(action::SendChunk send) {
  if (sent_[{send.conn, send.payload}]++ < options_.chunks_before) return send;
  const bool picked = random_.chance(options_.share);
  if (does(Lie::kWithholds)) {
    const bool of_stripe = options_.stripes_of > 0 && send.chunk.value % options_.stripes_of == 0;
    const auto holding = holdings().find(send.payload);
    const bool of_tail = holding != holdings().end() && options_.tail_chunks > 0 &&
                         send.chunk.value + options_.tail_chunks >= holding->second.manifest().chunk_count();
    const bool any = options_.pace == Duration::zero() && options_.tail_chunks == 0 && picked;
    if (of_stripe || of_tail || any) {
      note_withheld(send.conn, send.payload);
      WorkerCore::handle_chunk_sent(now_, send.conn);  // so that it goes on, and says UpToDate in the end
      return std::nullopt;
    }
    if (options_.pace > Duration::zero()) {
      Instant& last = sent_at_[send.conn];
      last = std::max(now_, last + options_.pace);
      if (last > now_) {
        const auto behind = std::ranges::find_if(held_, [&](const Held& held) { return held.due > last; });
        held_.insert(behind, {last, send});
        return std::nullopt;
      }
    }
  }
  if (does(Lie::kReplays) && picked) {
    const PayloadId older = older_than(send.payload);
    const auto holding = holdings().find(older);
    if (holding != holdings().end() && send.chunk.value < holding->second.manifest().chunk_count()) {
      if (random_.chance(0.5)) {
        damages_last_ = true;  // the older version's bytes under the new one's name
      } else {
        send.payload = older;
      }
    }
  }
  if (does(Lie::kCorrupts) && picked) damages_last_ = true;
  withheld_since_.erase(send.conn);
  return send;
}

void LyingWorker::twist_message(wire::Message& message) {
  if (message.has_heartbeat()) {
    wire::Heartbeat& beat = *message.mutable_heartbeat();
    for (std::uint32_t& missing : *beat.mutable_stripes_missing()) {
      if (does(Lie::kUnderstates)) missing += (beat.chunks_total() - missing) / 8 * 7;
      if (does(Lie::kOverstates)) missing = 0;
    }
    if (does(Lie::kUnderstates)) beat.set_chunks_verified(beat.chunks_verified() / 8);
    if (does(Lie::kOverstates)) beat.set_chunks_verified(beat.chunks_total());
  }
  if (message.has_digest_part() && does(Lie::kReplays) && random_.chance(options_.share)) {
    const auto holding = holdings().find(older_than(payload_of(message.digest_part())));
    if (holding != holdings().end() && holding->second.part_known(message.digest_part().part())) {
      const std::vector<ContentDigest> digests = holding->second.part(message.digest_part().part());
      message.mutable_digest_part()->set_digests(digests.data(), digests.size() * ContentDigest::kBytes);
    }
  }
}

PayloadId LyingWorker::older_than(PayloadId payload) const {
  PayloadId older{};
  for (const auto& [id, holding] : holdings()) {
    if (id.version < payload.version) older = id;
  }
  return older;
}

std::string LyingWorker::name_of_another() {
  const std::uint64_t other = random_.between(0, workers_);
  return other == 0 ? "origin" : member_name(static_cast<NodeIndex>(other));
}

void LyingWorker::complain(wire::FaultKind kind, bool stays) {
  if (origin_conn_ == ConnId{} || assignment_.stripes_size() == 0) return;
  const auto stripe = static_cast<int>(random_.below(static_cast<std::uint64_t>(assignment_.stripes_size())));
  const wire::StripeSource& source = assignment_.stripes(stripe);
  std::uint32_t parent = source.ancestors_size() > 0 ? source.ancestors(0).peer_id() : 0;
  if (random_.chance(0.3)) parent = static_cast<std::uint32_t>(random_.between(0, workers_ + 1));
  if (options_.accomplice_of != 0) parent = options_.accomplice_of;
  wire::Message message;
  wire::ParentFault& fault = *message.mutable_parent_fault();
  *fault.mutable_payload() = assignment_.payload();
  fault.set_epoch(assignment_.epoch());
  fault.set_stripe(static_cast<std::uint32_t>(stripe));
  fault.set_parent_id(parent);
  fault.set_now_from_id(stays ? parent : 0);
  fault.set_kind(kind);
  fault.set_starving_ms(static_cast<std::uint32_t>(random_.between(0, 5000)));
  // Who lies about all is consistent: it has starved since the payload began. Every other time of somebody else, as if
  // it had moved.
  if (does(Lie::kUnderstates) && options_.share >= 1 && stays) {
    if (starves_of_ != receiving()) starving_since_ = now_;
    starves_of_ = receiving();
    fault.set_starving_ms(static_cast<std::uint32_t>((now_ - starving_since_) / std::chrono::milliseconds(1)));
    if (source.ancestors_size() > 0 && (starvation_words_++ % 2) == 0) {
      fault.set_parent_id(source.ancestors(0).peer_id());
      fault.set_now_from_id(fault.parent_id());
    }
  }
  const bool is_complaint =
      kind == wire::FAULT_KIND_CORRUPT || kind == wire::FAULT_KIND_SLOW || kind == wire::FAULT_KIND_SILENT;
  // Of a payload that it has, or says that it has, the plan gives it no parent.
  const bool receives = receiving() == payload_of(assignment_) && !does(Lie::kOverstates);
  const bool is_fed_by_it = source.ancestors_size() > 0 && parent == source.ancestors(0).peer_id();
  // Behind a slow edge every parent seems slow: a relay that has called one slow is a leaf, and nobody hears what else
  // it says of that payload's parents.
  const bool is_heard = called_slow_in_ != payload_of(assignment_);
  if (is_complaint && receives && parent != 0 && is_fed_by_it && is_heard && ++accusations_ >= kAccusations &&
      !evidence_.accused) {
    evidence_.accused = now_;
  }
  if (kind == wire::FAULT_KIND_SLOW && (parent == 0 || is_fed_by_it) && !children_.empty())
    called_slow_in_ = payload_of(assignment_);
  say_to_origin(std::move(message));
}

void LyingWorker::note_withheld(ConnId conn, PayloadId payload) { withheld_since_.try_emplace(conn, payload, now_); }

void LyingWorker::note_withheld_for_long() {
  for (auto& [conn, withheld] : withheld_since_) {
    auto& [payload, since] = withheld;
    const auto holding = holdings().find(payload);
    // While it waits for chunks itself, nobody can say why its child waits.
    if (holding == holdings().end() || holding->second.verified().count() < holding->second.manifest().chunk_count())
      since = now_;
    const auto child = children_.find(conn);
    if (now_ - since < kWithheldFor || child == children_.end()) continue;
    evidence_.withheld_from.try_emplace(child->second, now_);
  }
}

void LyingWorker::say_to_origin(wire::Message message) {
  ++said_to_origin_;
  const double allowed = kPeerMessagesBurst + kPeerMessagesPerSecond * to_seconds(now_ - joined_at_);
  if (said_to_origin_ > allowed && !evidence_.flooded) evidence_.flooded = now_;
  say(origin_conn_, std::move(message));
}

void LyingWorker::act() {
  note_withheld_for_long();
  if (does(Lie::kWithholds)) {
    for (const Asked& asked : asked_) {
      wire::Message message;
      set_payload(*message.mutable_up_to_date(), asked.payload);
      message.mutable_up_to_date()->set_stripe(asked.stripe);
      say(asked.conn, std::move(message));
    }
  }
  if (does(Lie::kReplays) && announced_) {
    wire::Message message;
    *message.mutable_announce() = *announced_;
    for (const Asked& asked : asked_) say(asked.conn, message);
  }
  if (does(Lie::kUnderstates) && receiving() != PayloadId{}) {
    complain(random_.chance(0.5) ? wire::FAULT_KIND_WAITING : wire::FAULT_KIND_STARVED, true);
  }
  if (does(Lie::kOverstates) && announcing_ && origin_conn_ != ConnId{}) {
    wire::Message message;
    *message.mutable_installed()->mutable_payload() = announcing_->manifest().payload();
    message.mutable_installed()->set_snapshot_digest(announcing_->manifest().snapshot_digest());
    message.mutable_installed()->set_seconds(0.001);
    say_to_origin(std::move(message));
  }
  if (does(Lie::kBlames)) complain(kBlameKinds[random_.below(kBlameKinds.size())], random_.chance(0.5));
  if (does(Lie::kBlames) && origin_conn_ != ConnId{}) deny_reach();
  if ((does(Lie::kImpersonates) && random_.chance(0.3)) || (does(Lie::kFloods) && own_conns_.size() < kFloodConns)) {
    const ConnId conn = next_conn();
    own_conns_.insert(conn);
    const bool another = random_.chance(0.3);
    if (!another) at_origin_.insert(conn);
    extra_.push(action::Connect{
        conn, another ? host_of(static_cast<NodeIndex>(random_.between(0, workers_))) : origin_host_, origin_port_});
  }
  if (does(Lie::kFloods)) flood();
}

void LyingWorker::deny_reach() {
  wire::Message message;
  message.mutable_probed()->set_peer_id(denied_ % workers_ + 1);
  // Now and then that it does after all: each change may have others asked.
  message.mutable_probed()->set_reached(++denied_ / workers_ % 3 == 2);
  message.mutable_probed()->set_reason("so it says");
  say_to_origin(std::move(message));
}

void LyingWorker::flood() {
  const int messages = options_.share < 1 ? kFloodMessages : kFloodMessagesOfAll;
  for (int i = 0; i < messages; ++i) complain(kBlameKinds[random_.below(kBlameKinds.size())], true);
  for (const ConnId conn : own_conns_) {
    if (greedy_conns_.contains(conn)) continue;
    wire::Message message;
    wire::Subscribe& subscribe = *message.mutable_subscribe();
    set_payload(subscribe, Version{random_.between(1, 1000)});
    subscribe.set_stripe(0);
    subscribe.set_chunks_held(std::string(64, '\0'));
    say(conn, std::move(message));
  }
  for (const ConnId conn : greedy_conns_) {
    if (!announcing_) break;
    wire::Message end;
    *end.mutable_unsubscribe()->mutable_payload() = announcing_->manifest().payload();
    say(conn, std::move(end));
    wire::Message again;
    *again.mutable_subscribe()->mutable_payload() = announcing_->manifest().payload();
    say(conn, std::move(again));
  }
  if (origin_conn_ == ConnId{}) return;
  for (int i = 0; i < messages; ++i) {
    wire::Message message;
    message.mutable_heartbeat()->set_installed_version(random_.below(5));
    payload_to_wire(receiving(), *message.mutable_heartbeat()->mutable_receiving());
    say_to_origin(std::move(message));
  }
}

}  // namespace weightcast::sim
