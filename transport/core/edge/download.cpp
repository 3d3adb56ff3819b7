#include "transport/core/edge/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "base/units.h"
#include "transport/core/deadline.h"
#include "transport/core/edge/links.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

// In a row from the origin, before the payload is given up: the first may have been damaged on its way.
constexpr std::uint32_t kDamagedByOriginMax = 3;
// However long this node stood still, it is as patient as ever soon after.
constexpr Duration kLateMax = std::chrono::seconds(1);

std::vector<std::uint32_t> split_weights(const std::vector<std::uint32_t>& weights, std::uint32_t streams) {
  std::vector<std::uint32_t> split;
  split.reserve(weights.size() * streams);
  for (const std::uint32_t weight : weights) {
    for (std::uint32_t i = 0; i < streams; ++i) split.push_back(weight);
  }
  return split;
}

bool same_parent(const NodeAddress& a, const NodeAddress& b) {
  return a.id == b.id && a.host == b.host && a.port == b.port;
}

}  // namespace

Download::Download(const Timeouts& timeouts, std::uint32_t streams, Holding& holding, Links& links,
                   ActionQueue& actions)
    : timeouts_(timeouts),
      streams_wanted_(std::max<std::uint32_t>(1, streams)),
      holding_(holding),
      links_(links),
      actions_(actions),
      verifier_(timeouts, holding, actions) {}

Status Download::assign(Instant now, PeerId self, const Assignment& assignment) {
  if (assignment.epoch <= epoch_) return {};
  std::vector<std::vector<NodeAddress>> ancestors;
  for (const StripeSource& source : assignment.stripes) {
    ancestors.push_back(source.ancestors);
    if (self != kOriginId) std::erase_if(ancestors.back(), [&](const NodeAddress& a) { return a.id == self; });
    if (ancestors.back().empty())
      return fail(Errc::kCorrupt, Op::kPlan, "assignment: a stripe has no ancestor but this node itself");
  }

  epoch_ = assignment.epoch;
  predicted_bytes_per_s_ = 0;
  for (const StripeSource& source : assignment.stripes) predicted_bytes_per_s_ += source.predicted_bytes_per_s;
  const std::size_t count = assignment.stripes.size();
  // As many as the limits of stripes leave: split further, a stripe of little weight would have too small a share.
  streams_ = std::min(streams_wanted_, static_cast<std::uint32_t>(kStripesMax / count));
  std::vector<std::uint32_t> weights = split_weights(assignment.stripe_weights, streams_);
  while (streams_ > 1 && !are_stripe_weights(weights)) weights = split_weights(assignment.stripe_weights, --streams_);
  const bool restriped = weights != weights_;
  if (restriped) {
    for (Stripe& stripe : stripes_) detach(stripe);
    weights_ = std::move(weights);
    stripe_map_.emplace(weights_);
    stripes_.assign(count * streams_, Stripe(timeouts_));
  }
  for (std::size_t i = 0; i < stripes_.size(); ++i) {
    Stripe& stripe = stripes_[i];
    const StripeSource& source = assignment.stripes[i / streams_];
    const auto& above = ancestors[i / streams_];
    const bool stays = !restriped && !stripe.ancestors.empty() &&
                       same_parent(stripe.ancestors[stripe.at], above.front()) && !stripe.retry_at;
    if (!restriped && !stays) {
      if (stripe.subscribed) {
        stripe.drained_from = stripe.conn;
        stripe.drained_by = now + timeouts_.draining;
      }
      detach(stripe, true);
    }
    stripe.ancestors = above;
    stripe.monitor.expect(source.predicted_bytes_per_s / streams_, streams_);
    stripe.at = 0;
    stripe.retry_at.reset();
    if (stays) continue;
    count_missing(now);
    attach(now, stripe);
  }
  count_missing(now);
  for (const Stripe& stripe : stripes_) note_due(now, stripe);
  return {};
}

void Download::count_missing(Instant now) {
  std::vector<std::uint32_t> missing(stripes_.size());
  const ChunkSet& verified = holding_.verified();
  for (auto c = verified.next_missing(ChunkIndex{0}); c; c = verified.next_missing(ChunkIndex{c->value + 1})) {
    if (!elsewhere_.contains(*c)) ++missing[stripe_map_->stripe_of(*c)];
  }
  for (std::size_t i = 0; i < stripes_.size(); ++i) {
    if (stripes_[i].missing == 0 && missing[i] > 0) stripes_[i].monitor.handle_hungry(now);
    stripes_[i].missing = missing[i];
  }
}

ParentMonitor::Edge Download::edge_of(const Stripe& stripe) const {
  return {stripe.missing > 0, holding_.open(), stripe.ancestors.size() <= 1, holding_.manifest().chunk_bytes, late_};
}

void Download::handle_storage_ready(Instant now) {
  storage_ready_ = true;
  if (stripe_map_) count_missing(now);
  for (Stripe& stripe : stripes_) {
    if (wants_more(stripe)) {
      subscribe_if_ready(now, stripe);
    } else {
      detach(stripe);
    }
  }
}

void Download::handle_grown(Instant now) {
  for (Stripe& stripe : stripes_) stripe.monitor.handle_grown(now, stripe.missing > 0);
  count_missing(now);
  for (const EarlyArrivals::Part& early : verifier_.take_early_parts()) {
    (void)handle_digest_part(now, early.sender, early.part, early.digests);
  }
  replay_early_chunks(now);
  for (Stripe& stripe : stripes_) {
    const bool paused = stripe.conn == ConnId{} && !stripe.retry_at;
    if (!wants_more(stripe)) {
      detach(stripe);
    } else if (paused) {
      attach(now, stripe);
    } else {
      note_due(now, stripe);
    }
  }
}

void Download::pause(ConnId conn) {
  verifier_.forget(conn);
  for (Stripe& stripe : stripes_) {
    if (stripe.conn == conn) detach(stripe);
  }
}

void Download::leave_corrupt(Instant now, ConnId conn, std::optional<ChunkIndex> damaged) {
  for (Stripe& stripe : stripes_) {
    if (stripe.conn != conn) continue;
    if (stripe.ancestors[stripe.at].id == kOriginId) ++stripe.damaged_by_origin;
    leave(now, stripe, wire::FAULT_KIND_CORRUPT, damaged);
  }
}

void Download::replay_early_chunks(Instant now) {
  // Each is answered for by who sent it, and that need not be who sent the digests.
  for (const EarlyArrivals::Chunk& early : verifier_.take_early_chunks())
    (void)handle_chunk(now, early.sender, early.arrival);
}

bool Download::damaged_at_origin() const {
  return std::ranges::any_of(stripes_, [](const Stripe& s) { return s.damaged_by_origin >= kDamagedByOriginMax; });
}

void Download::attach(Instant now, Stripe& stripe) {
  if (!wants_more(stripe) && storage_ready_) return;
  stripe.retry_at.reset();
  stripe.conn = links_.open(now, stripe.ancestors[stripe.at], lane_of(stripe));
  stripe.attached_at = now;
  stripe.next_is_dialled = false;
  stripe.subscribed = false;
  stripe.monitor.handle_asked(now);
  subscribe_if_ready(now, stripe);
  note_due(now, stripe);
}

Duration Download::dial_patience() const { return links_.dial_patience(timeouts_.dial); }

Duration Download::dial_beside_patience() const { return dial_patience() - (timeouts_.dial - timeouts_.dial_beside); }

void Download::judge_dial(Instant now, Stripe& stripe) {
  if (!is_dial_judged(stripe)) return;
  const Duration waited = now - stripe.attached_at;
  if (waited >= dial_patience()) {
    // The connection stays, and may be made later: where all dials take that long, the next attempt finds it. So this
    // is no complaint: on a slow link an honest parent takes as long.
    links_.note_overdue(stripe.conn);
    leave(now, stripe, wire::FAULT_KIND_NOT_AVAILABLE);
  } else if (waited >= dial_beside_patience() && !stripe.next_is_dialled) {
    stripe.next_is_dialled = true;
    (void)links_.open(now, stripe.ancestors[(stripe.at + 1) % stripe.ancestors.size()], lane_of(stripe));
  }
}

void Download::subscribe_if_ready(Instant now, Stripe& stripe) {
  const bool draining = stripe.drained_from != ConnId{};
  if (storage_ready_ && !stripe.subscribed && !draining && links_.is_open(stripe.conn)) subscribe(now, stripe);
}

void Download::end_draining(Instant now, Stripe& stripe) {
  stripe.drained_from = ConnId{};
  if (wants_more(stripe)) subscribe_if_ready(now, stripe);
}

void Download::subscribe(Instant now, Stripe& stripe) {
  wire::Message message;
  wire::Subscribe* s = message.mutable_subscribe();
  set_payload(*s, holding_.manifest().id());
  s->set_stripe(index_of(stripe));
  s->mutable_stripe_weights()->Assign(weights_.begin(), weights_.end());
  ChunkSet held = holding_.verified();
  for (auto c = elsewhere_.next_in(ChunkIndex{0}); c; c = elsewhere_.next_in(ChunkIndex{c->value + 1})) held.insert(*c);
  s->set_chunks_held(held.to_bytes());
  s->set_parts_held(holding_.parts_from_start());
  actions_.push(action::Send{stripe.conn, std::move(message)});
  stripe.subscribed = true;
  stripe.monitor.handle_asked(now);
  note_due(now, stripe);
}

void Download::detach(Stripe& stripe, bool answer) {
  if (stripe.subscribed) {
    wire::Message message;
    message.mutable_unsubscribe()->set_answer(answer);
    set_payload(*message.mutable_unsubscribe(), holding_.manifest().id());
    message.mutable_unsubscribe()->set_stripe(index_of(stripe));
    actions_.push(action::Send{stripe.conn, std::move(message)});
  }
  stripe.subscribed = false;
  stripe.conn = ConnId{};
}

void Download::cancel() {
  for (Stripe& stripe : stripes_) {
    detach(stripe);
    stripe.retry_at.reset();
    stripe.missing = 0;
  }
}

ParentFault Download::fault_of(const Stripe& stripe, wire::FaultKind why) const {
  const PeerId parent = stripe.ancestors[stripe.at].id;
  return {holding_.manifest().id(), epoch_, index_of(stripe) / streams_, parent, parent, why, {}};
}

void Download::report_starvation(Instant now, Stripe& stripe) {
  const auto starvation = stripe.monitor.starvation(now, edge_of(stripe));
  if (!starvation || stripe.ancestors.empty()) return;
  ParentFault fault = fault_of(stripe, starvation->parent_idle ? wire::FAULT_KIND_STARVED : wire::FAULT_KIND_WAITING);
  fault.starving = starvation->lasts;
  faults_.push_back(fault);
}

void Download::leave(Instant now, Stripe& stripe, wire::FaultKind why, std::optional<ChunkIndex> damaged) {
  ParentFault fault = fault_of(stripe, why);
  fault.damaged = damaged;
  feed_.handle_left(fault.parent);
  if (!stripe.interrupted_since && stripe.missing > 0) stripe.interrupted_since = stripe.monitor.hungry_since();
  const ConnId left = stripe.conn;
  if (why == wire::FAULT_KIND_STARVED) detach(stripe);
  stripe.subscribed = false;
  stripe.conn = ConnId{};
  // What the parent still has on the way is not waited for: it may be most of a second.
  const bool drop = why == wire::FAULT_KIND_SLOW || why == wire::FAULT_KIND_SILENT || why == wire::FAULT_KIND_CORRUPT;
  if (drop && links_.is_link(left)) {
    links_.close(left);
    for (Stripe& other : stripes_) {
      if (other.drained_from == left) end_draining(now, other);
      if (other.conn == left) leave(now, other, why);
    }
  }
  if (why == wire::FAULT_KIND_SLOW) stripe.monitor.handle_left(ParentMonitor::Verdict::kSlow, stripe.failures > 0);
  if (why == wire::FAULT_KIND_SILENT) stripe.monitor.handle_left(ParentMonitor::Verdict::kSilent, stripe.failures > 0);
  stripe.at = (stripe.at + 1) % stripe.ancestors.size();
  ++stripe.failures;
  fault.now_from = stripe.ancestors[stripe.at].id;
  faults_.push_back(fault);
  if (stripe.failures < stripe.ancestors.size()) {
    attach(now, stripe);
    return;
  }
  const auto doublings = std::min<std::size_t>(stripe.failures - stripe.ancestors.size(), 10);
  stripe.retry_at = now + std::min(timeouts_.redial_max, timeouts_.redial_min * (std::int64_t{1} << doublings));
  note_due(now, stripe);
}

void Download::handle_open(Instant now, ConnId conn) {
  for (Stripe& stripe : stripes_) {
    if (stripe.conn == conn) subscribe_if_ready(now, stripe);
  }
}

void Download::handle_closed(Instant now, ConnId conn, bool was_made) {
  for (Stripe& stripe : stripes_) {
    if (stripe.drained_from == conn) end_draining(now, stripe);
    if (stripe.conn == conn) leave(now, stripe, was_made ? wire::FAULT_KIND_CLOSED : wire::FAULT_KIND_NOT_AVAILABLE);
  }
}

void Download::handle_unsubscribed(Instant now, ConnId conn, std::uint32_t stripe) {
  if (stripe < stripes_.size() && stripes_[stripe].drained_from == conn) end_draining(now, stripes_[stripe]);
}

Status Download::handle_digest_part(Instant now, ConnId conn, std::uint32_t part, Bytes digests) {
  const Result<ChunkVerifier::Verdict> verdict = verifier_.take_part(conn, part, digests, uses(conn));
  if (!verdict.has_value()) {
    leave_corrupt(now, conn);
    return verdict.error();
  }
  if (*verdict == ChunkVerifier::Verdict::kEarly) return {};
  if (*verdict == ChunkVerifier::Verdict::kTooEarly) {
    pause(conn);
    return {};
  }
  for (Stripe& stripe : stripes_) {
    if (stripe.conn == conn) stripe.monitor.handle_heard(now);
  }
  if (*verdict == ChunkVerifier::Verdict::kNew) replay_early_chunks(now);
  return {};
}

void Download::handle_up_to_date(Instant now, ConnId conn, std::uint32_t stripe_index) {
  if (stripe_index >= stripes_.size() || stripes_[stripe_index].conn != conn) return;
  stripes_[stripe_index].failures = 0;
  stripes_[stripe_index].monitor.handle_up_to_date(now);
}

void Download::handle_not_available(Instant now, ConnId conn) {
  for (Stripe& stripe : stripes_) {
    if (stripe.conn != conn) continue;
    if (stripe.ancestors[stripe.at].id == kOriginId) withdrawn_ = true;
    stripe.subscribed = false;
    leave(now, stripe, wire::FAULT_KIND_NOT_AVAILABLE);
  }
}

bool Download::handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) {
  using Verdict = ChunkVerifier::Verdict;
  switch (verifier_.take_chunk(now, conn, chunk, uses(conn))) {
    case Verdict::kNew: credit(now, conn, chunk); return true;
    case Verdict::kKnown:
    case Verdict::kEarly: return false;
    case Verdict::kTooEarly: pause(conn); return false;
    case Verdict::kDamaged:
      say_damaged(conn, chunk.chunk);
      leave_corrupt(now, conn, chunk.chunk);
      return false;
    case Verdict::kForeign: leave_corrupt(now, conn); return false;
  }
  return false;
}

void Download::credit(Instant now, ConnId conn, const ChunkArrival& chunk) {
  Stripe& owner = stripes_[stripe_map_->stripe_of(chunk.chunk)];
  count_chunk(now, owner, chunk.chunk);
  const NodeAddress* sender = nullptr;  // none: it was left, and this was still on its way
  for (Stripe& stripe : stripes_) {
    if (stripe.conn != conn) continue;
    stripe.monitor.handle_heard(now);
    stripe.failures = stripe.damaged_by_origin = 0;
    sender = &stripe.ancestors[stripe.at];
  }
  if (sender != nullptr) feed_.handle_chunk(sender->id, sender->name, chunk.size_bytes);
  owner.monitor.handle_chunk(now, chunk.size_bytes, owner.conn == conn, edge_of(owner));
  note_due(now, owner);
  if (streams_ > 1) tell_streams_beside(now, owner, conn);
  if (!wants_more(owner)) detach(owner);
}

void Download::count_chunk(Instant now, Stripe& owner, ChunkIndex chunk) {
  const bool was_expected_elsewhere = elsewhere_.contains(chunk) && elsewhere_.erase(chunk);
  if (!was_expected_elsewhere && owner.missing > 0) --owner.missing;
  if (!owner.interrupted_since) return;
  owner.interrupted += now - *std::exchange(owner.interrupted_since, std::nullopt);
  feed_.handle_interrupted(owner.interrupted);
}

void Download::expect_elsewhere(const ChunkRange& range) {
  const std::uint32_t count = holding_.manifest().chunk_count();
  if (elsewhere_.size() < count) elsewhere_.grow(count);
  for (std::uint32_t c = range.first.value; c < range.first.value + range.chunks; ++c) {
    if (!is_wanted_of_parents(ChunkIndex{c})) continue;
    elsewhere_.insert(ChunkIndex{c});
    if (!stripe_map_) continue;
    std::uint32_t& missing = stripes_[stripe_map_->stripe_of(ChunkIndex{c})].missing;
    if (missing > 0) --missing;
  }
  std::set<ConnId> told;
  for (Stripe& stripe : stripes_) {
    if (stripe.subscribed && told.insert(stripe.conn).second) {
      wire::Message message;
      set_payload(*message.mutable_skip(), holding_.manifest().id());
      message.mutable_skip()->set_first_chunk(range.first.value);
      message.mutable_skip()->set_chunks(range.chunks);
      actions_.push(action::Send{stripe.conn, std::move(message)});
    }
  }
  for (Stripe& stripe : stripes_) {
    if (!wants_more(stripe)) detach(stripe);
  }
}

void Download::ask_again(Instant now, const std::vector<ChunkRange>& ranges) {
  std::set<std::uint32_t> lacking;
  for (const auto& [first, chunks] : ranges) {
    for (std::uint32_t c = first.value; c < first.value + chunks && c < elsewhere_.size(); ++c) {
      if (!elsewhere_.erase(ChunkIndex{c}) || !stripe_map_) continue;
      Stripe& stripe = stripes_[stripe_map_->stripe_of(ChunkIndex{c})];
      if (stripe.missing++ == 0) stripe.monitor.handle_hungry(now);
      lacking.insert(index_of(stripe));
    }
  }
  for (const std::uint32_t index : lacking) {
    Stripe& stripe = stripes_[index];
    if (stripe.retry_at || stripe.ancestors.empty()) continue;
    if (stripe.subscribed) {
      // It has been told to skip them: asked anew, it knows what is lacking.
      stripe.drained_from = stripe.conn;
      stripe.drained_by = now + timeouts_.draining;
      detach(stripe, true);
    }
    if (stripe.conn == ConnId{}) attach(now, stripe);
    note_due(now, stripe);
  }
}

Status Download::handle_digest_part_elsewhere(Instant now, std::uint32_t part, Bytes digests) {
  WC_ASSIGN(const ChunkVerifier::Verdict verdict, verifier_.take_part(ConnId{}, part, digests, false));
  if (verdict == ChunkVerifier::Verdict::kNew) replay_early_chunks(now);
  return {};
}

ChunkVerifier::Verdict Download::handle_chunk_elsewhere(Instant now, const ChunkArrival& chunk) {
  const ChunkVerifier::Verdict verdict = verifier_.take_chunk(now, ConnId{}, chunk, false);
  if (verdict != ChunkVerifier::Verdict::kNew || !stripe_map_) return verdict;
  Stripe& owner = stripes_[stripe_map_->stripe_of(chunk.chunk)];
  count_chunk(now, owner, chunk.chunk);
  owner.monitor.handle_elsewhere(chunk.size_bytes);
  note_due(now, owner);
  if (!wants_more(owner)) detach(owner);
  return verdict;
}

std::uint32_t Download::wanted_of_parents() const {
  return holding_.manifest().chunk_count() - holding_.verified().count() - elsewhere_.count();
}

std::optional<ChunkIndex> Download::last_wanted_of_parents(ChunkIndex end) const {
  for (std::uint32_t c = std::min(end.value, holding_.manifest().chunk_count()); c > 0; --c) {
    if (is_wanted_of_parents(ChunkIndex{c - 1})) return ChunkIndex{c - 1};
  }
  return std::nullopt;
}

void Download::tell_streams_beside(Instant now, const Stripe& fed, ConnId conn) {
  const std::size_t first = index_of(fed) / streams_ * streams_;
  for (Stripe& other : std::span(stripes_).subspan(first, streams_)) {
    if (&other == &fed) continue;
    const bool same =
        fed.conn == conn && other.subscribed && same_parent(fed.ancestors[fed.at], other.ancestors[other.at]);
    other.monitor.handle_chunk_beside(now, same);
    note_due(now, other);
  }
}

void Download::redial(Instant now, ConnId stalled) {
  actions_.push(action::info(fmt::format("version {}: one of {} streams from {} brings nothing; dialling it anew",
                                         holding_.manifest().version.value, streams_, parent_name())));
  links_.close(stalled);
  for (Stripe& stripe : stripes_) {
    if (stripe.drained_from == stalled) end_draining(now, stripe);
    if (stripe.conn != stalled) continue;
    stripe.subscribed = false;
    stripe.conn = ConnId{};
    attach(now, stripe);
  }
}

void Download::say_damaged(ConnId conn, ChunkIndex chunk) {
  if (!uses(conn)) return;
  wire::Message message;
  set_payload(*message.mutable_chunk_damaged(), holding_.manifest().id());
  message.mutable_chunk_damaged()->set_chunk(chunk.value);
  actions_.push(action::Send{conn, std::move(message)});
}

void Download::handle_timeout(Instant now) {
  if (!due_ || now < *due_) return;
  late_ = std::min(std::max(now - *due_, late_ - late_ / 8), kLateMax);
  for (Stripe& stripe : stripes_) {
    if (!wants_more(stripe)) continue;
    report_starvation(now, stripe);
    if (stripe.retry_at) {
      if (now >= *stripe.retry_at) attach(now, stripe);
      continue;
    }
    if (stripe.drained_from != ConnId{} && now >= stripe.drained_by) end_draining(now, stripe);
    if (!stripe.subscribed) {
      judge_dial(now, stripe);
      continue;
    }
    switch (stripe.monitor.judge(now, edge_of(stripe))) {
      case ParentMonitor::Verdict::kFine: break;
      case ParentMonitor::Verdict::kSlow:
        if (stripe.ancestors.size() > 1) {
          leave(now, stripe, wire::FAULT_KIND_SLOW);
        } else {
          faults_.push_back(fault_of(stripe, wire::FAULT_KIND_SLOW));
          stripe.monitor.handle_kept(now);
        }
        break;
      case ParentMonitor::Verdict::kSilent: leave(now, stripe, wire::FAULT_KIND_SILENT); break;
      case ParentMonitor::Verdict::kStarved: leave(now, stripe, wire::FAULT_KIND_STARVED); break;
      case ParentMonitor::Verdict::kStalled: redial(now, stripe.conn); break;
    }
  }
  due_.reset();
  for (const Stripe& stripe : stripes_) note_due(now, stripe);
}

void Download::note_due(Instant now, const Stripe& stripe) {
  if (!wants_more(stripe)) return;
  EarliestDeadline earliest;
  if (!stripe.ancestors.empty()) earliest.consider(stripe.monitor.starvation_due(edge_of(stripe)));
  if (stripe.retry_at) {
    earliest.consider(stripe.retry_at);
  } else if (stripe.drained_from != ConnId{}) {
    earliest.consider(stripe.drained_by);
  } else if (stripe.subscribed) {
    earliest.consider(stripe.monitor.deadline(edge_of(stripe)));
  } else if (is_dial_judged(stripe)) {
    earliest.consider(stripe.attached_at + (stripe.next_is_dialled ? dial_patience() : dial_beside_patience()));
  }
  // What has been due by now is no sign of lateness: patience may have become shorter.
  const std::optional<Instant> first = earliest.first();
  if (first && (!due_ || std::max(*first, now) < *due_)) due_ = std::max(*first, now);
}

bool Download::uses(ConnId conn) const {
  return std::ranges::any_of(stripes_, [&](const Stripe& s) { return s.conn == conn; });
}

std::vector<std::uint32_t> Download::missing_by_stripe() const {
  std::vector<std::uint32_t> missing(stripes_.size() / streams_);
  for (const Stripe& stripe : stripes_) missing[index_of(stripe) / streams_] += stripe.missing;
  // A relay has not what it expects, from wherever.
  for (auto c = elsewhere_.next_in(ChunkIndex{0}); c && stripe_map_; c = elsewhere_.next_in(ChunkIndex{c->value + 1})) {
    ++missing[stripe_map_->stripe_of(*c) / streams_];
  }
  return missing;
}

std::string Download::parent_name() const {
  if (stripes_.empty() || stripes_[0].ancestors.empty()) return {};
  return stripes_[0].ancestors[stripes_[0].at].name;
}

}  // namespace weightcast
