#include "transport/core/edge/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/units.h"
#include "transport/core/deadline.h"
#include "transport/core/edge/links.h"
#include "transport/core/payload_wire.h"

namespace weightcast {
namespace {

// In a row from the origin, before the payload is given up: the first may have been damaged on its way.
constexpr std::uint32_t kDamagedByOriginMax = 3;
// A parent below this share of what the plan predicts, while it has more to send, is slow.
constexpr double kSlowShare = 0.5;
// Judged by all quarters of the window; known to be as fast as hoped when none of them is one that was made up.
constexpr std::uint32_t kQuartersJudged = 4;
constexpr std::uint32_t kQuartersMadeUp = kQuartersJudged - 1;
constexpr std::uint32_t kQuartersKnown = kQuartersMadeUp + kQuartersJudged;
// What is expected goes up only where the new rate would not be called slow for a chunk less.
constexpr double kRecovered = 1.5;
// A rate is judged over so many chunks at least: with fewer, one that is just being sent makes it look like half.
constexpr double kChunksJudged = 12;
// With nobody else to turn to, silence is waited out this many times longer before the connection is made anew.
constexpr int kOnlyParentPatience = 20;
// However slow the plan says that a parent is.
constexpr Duration kPatienceMax = std::chrono::hours(1);
// Where the plan says nothing: the largest chunk at 1 Mbit/s takes half of it.
constexpr Duration kUnknownPatienceMax = std::chrono::minutes(1);

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
      actions_(actions) {}

Status Download::assign(Instant now, PeerId self, const Assignment& assignment) {
  if (assignment.epoch <= epoch_) return {};
  std::vector<std::vector<NodeAddress>> ancestors;
  for (const StripeSource& source : assignment.stripes) {
    ancestors.push_back(source.ancestors);
    if (self != kOriginId) std::erase_if(ancestors.back(), [&](const NodeAddress& a) { return a.id == self; });
    if (ancestors.back().empty()) return fail(Errc::kCorrupt, Op::kPlan, "assignment: nobody but this node itself");
  }

  epoch_ = assignment.epoch;
  const std::size_t count = assignment.stripes.size();
  streams_ = std::min(streams_wanted_, static_cast<std::uint32_t>(kStripesMax / count));
  std::vector<std::uint32_t> weights = split_weights(assignment.stripe_weights, streams_);
  const bool restriped = weights != weights_;
  if (restriped) {
    for (Stripe& stripe : stripes_) detach(stripe);
    weights_ = std::move(weights);
    stripe_map_.emplace(weights_);
    stripes_.assign(count * streams_, {});
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
    stripe.expected_bytes_per_s = source.predicted_bytes_per_s / streams_ * stripe.share_hoped_for;
    stripe.at = 0;
    stripe.retry_at.reset();
    if (stays) continue;
    count_missing();
    attach(now, stripe);
  }
  count_missing();
  for (const Stripe& stripe : stripes_) note_due(stripe);
  return {};
}

void Download::count_missing() {
  for (Stripe& stripe : stripes_) stripe.missing = 0;
  const ChunkSet& verified = holding_.verified();
  for (auto c = verified.next_missing(ChunkIndex{0}); c; c = verified.next_missing(ChunkIndex{c->value + 1})) {
    ++stripes_[stripe_map_->stripe_of(*c)].missing;
  }
}

void Download::handle_storage_ready(Instant now) {
  storage_ready_ = true;
  if (stripe_map_) count_missing();
  for (Stripe& stripe : stripes_) {
    if (wants_more(stripe)) {
      subscribe_if_ready(now, stripe);
    } else {
      detach(stripe);
    }
  }
}

void Download::handle_grown(Instant now) {
  for (Stripe& stripe : stripes_) {
    if (stripe.missing == 0) stripe.fed_at = now;  // nothing was to come
    restart_window(now, stripe);
  }
  count_missing();
  for (const EarlyArrivals::Part& early : early_.take_parts()) {
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
      note_due(stripe);
    }
  }
}

void Download::pause(ConnId conn) {
  early_.erase(conn);
  for (Stripe& stripe : stripes_) {
    if (stripe.conn == conn) detach(stripe);
  }
}

void Download::leave_corrupt(Instant now, ConnId conn) {
  for (Stripe& stripe : stripes_) {
    if (stripe.conn != conn) continue;
    if (stripe.ancestors[stripe.at].id == kOriginId) ++stripe.damaged_by_origin;
    leave(now, stripe, wire::FAULT_KIND_CORRUPT);
  }
}

void Download::replay_early_chunks(Instant now) {
  // Each is answered for by who sent it, and that need not be who sent the digests.
  for (const EarlyArrivals::Chunk& early : early_.take_chunks()) (void)handle_chunk(now, early.sender, early.arrival);
}

bool Download::damaged_at_origin() const {
  return std::ranges::any_of(stripes_, [](const Stripe& s) { return s.damaged_by_origin >= kDamagedByOriginMax; });
}

void Download::attach(Instant now, Stripe& stripe) {
  if (!wants_more(stripe) && storage_ready_) return;
  stripe.retry_at.reset();
  stripe.conn = links_.open(stripe.ancestors[stripe.at], lane_of(stripe));
  stripe.subscribed = false;
  stripe.heard_at = stripe.fed_at = now;
  restart_window(now, stripe);
  subscribe_if_ready(now, stripe);
  note_due(stripe);
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
  s->set_chunks_held(holding_.verified().to_bytes());
  s->set_parts_held(holding_.parts_from_start());
  actions_.push(action::Send{stripe.conn, std::move(message)});
  stripe.subscribed = true;
  stripe.heard_at = stripe.fed_at = stripe.prompt_since = now;
  restart_window(now, stripe);
  note_due(stripe);
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

wire::ParentFault Download::fault_of(const Stripe& stripe, wire::FaultKind why) const {
  wire::ParentFault fault;
  set_payload(fault, holding_.manifest().id());
  fault.set_epoch(epoch_.value);
  fault.set_stripe(index_of(stripe) / streams_);
  fault.set_parent_id(stripe.ancestors[stripe.at].id.value);
  fault.set_now_from_id(fault.parent_id());
  fault.set_kind(why);
  return fault;
}

void Download::expect_less(Stripe& stripe) {
  stripe.share_hoped_for *= kSlowShare;
  stripe.expected_bytes_per_s *= kSlowShare;
}

void Download::expect_more(Stripe& stripe) {
  const double share = std::min(1.0, stripe.share_hoped_for / kSlowShare);
  stripe.expected_bytes_per_s *= share / stripe.share_hoped_for;
  stripe.share_hoped_for = share;
}

void Download::note_pace(Instant now, Stripe& stripe) {
  if (now - stripe.fed_at > timeouts_.parent_silence / 2) stripe.prompt_since = now;
  if (stripe.expected_bytes_per_s > 0 || now - stripe.prompt_since < timeouts_.rate_window) return;
  stripe.prompt_since = now;
  expect_more(stripe);
  note_due(stripe);
}

void Download::handle_slow(Instant now, Stripe& stripe) {
  if (stripe.ancestors.size() > 1) return leave(now, stripe, wire::FAULT_KIND_SLOW);
  faults_.push_back(fault_of(stripe, wire::FAULT_KIND_SLOW));
  expect_less(stripe);
  restart_window(now, stripe);
}

void Download::leave(Instant now, Stripe& stripe, wire::FaultKind why) {
  wire::ParentFault fault = fault_of(stripe, why);
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
  // One silent parent says nothing of this node's own link; one after the other does.
  if (why == wire::FAULT_KIND_SLOW || (why == wire::FAULT_KIND_SILENT && stripe.failures > 0)) expect_less(stripe);
  stripe.at = (stripe.at + 1) % stripe.ancestors.size();
  ++stripe.failures;
  fault.set_now_from_id(stripe.ancestors[stripe.at].id.value);
  faults_.push_back(std::move(fault));
  if (stripe.failures < stripe.ancestors.size()) {
    attach(now, stripe);
    return;
  }
  const auto doublings = std::min<std::size_t>(stripe.failures - stripe.ancestors.size(), 10);
  stripe.retry_at = now + std::min(timeouts_.redial_max, timeouts_.redial_min * (std::int64_t{1} << doublings));
  note_due(stripe);
}

void Download::restart_window(Instant now, Stripe& stripe) {
  stripe.quarter_start = now;
  stripe.quarter_bytes = {};
  stripe.quarters = 0;
  stripe.excused = false;
}

void Download::end_excuse(Instant now, Stripe& stripe) {
  restart_window(now, stripe);
  if (stripe.expected_bytes_per_s <= 0) return;
  stripe.quarters = kQuartersMadeUp;
  std::fill_n(stripe.quarter_bytes.begin(), kQuartersMadeUp,
              stripe.expected_bytes_per_s * to_seconds(window(stripe)) / kQuartersJudged);
  note_due(stripe);
}

Duration Download::window(const Stripe& stripe) const {
  return std::max(timeouts_.rate_window,
                  from_seconds(kChunksJudged * holding_.manifest().chunk_bytes / stripe.expected_bytes_per_s));
}

Download::Verdict Download::judge(Instant now, Stripe& stripe) {
  // A quarter that was noticed late counts as the longer one that it was.
  const double late = to_seconds(now - stripe.quarter_start) / to_seconds(window(stripe) / kQuartersJudged);
  stripe.quarters = std::min(stripe.quarters + 1, kQuartersKnown);
  auto& quarters = stripe.quarter_bytes;
  const double bytes = std::accumulate(quarters.begin(), quarters.end(), 0.0);
  const double expected =
      stripe.expected_bytes_per_s * to_seconds(window(stripe)) * (kQuartersMadeUp + late) / kQuartersJudged;
  const bool nothing_came = quarters[2] + quarters[3] == 0;
  std::shift_left(quarters.begin(), quarters.end(), 1);
  quarters.back() = 0;
  stripe.quarter_start = now;
  if (stripe.quarters < kQuartersJudged) return Verdict::kFine;
  if (bytes < kSlowShare * expected) return nothing_came ? Verdict::kSilent : Verdict::kSlow;
  if (stripe.quarters == kQuartersKnown) {
    stripe.stopped_before = false;
    if (bytes >= kRecovered * expected) expect_more(stripe);
  }
  return Verdict::kFine;
}

void Download::count_bytes(Instant now, std::uint32_t bytes) {
  if (counted_bytes_ == 0) counted_since_ = now;
  counted_bytes_ += bytes;
  if (now - counted_since_ < timeouts_.rate_window) return;
  bytes_per_s_ = double(counted_bytes_) / to_seconds(now - counted_since_);
  counted_bytes_ = 0;
}

void Download::handle_open(Instant now, ConnId conn) {
  for (Stripe& stripe : stripes_) {
    if (stripe.conn == conn) subscribe_if_ready(now, stripe);
  }
}

void Download::handle_closed(Instant now, ConnId conn) {
  for (Stripe& stripe : stripes_) {
    if (stripe.drained_from == conn) end_draining(now, stripe);
    if (stripe.conn == conn) leave(now, stripe, wire::FAULT_KIND_CLOSED);
  }
}

void Download::handle_unsubscribed(Instant now, ConnId conn, std::uint32_t stripe) {
  if (stripe < stripes_.size() && stripes_[stripe].drained_from == conn) end_draining(now, stripes_[stripe]);
}

Status Download::handle_digest_part(Instant now, ConnId conn, std::uint32_t part, Bytes digests) {
  const bool known = holding_.part_known(part);
  if (Status put = holding_.put_part(part, digests); !put.has_value()) {
    if (put.error().code == Errc::kNotFound) {
      if (uses(conn) && !early_.add(conn, part, digests)) pause(conn);
      return {};
    }
    leave_corrupt(now, conn);
    return put;
  }
  for (Stripe& stripe : stripes_) {
    if (stripe.conn == conn) stripe.heard_at = now;
  }
  if (known) return {};
  actions_.push(action::PutDigestPart{holding_.manifest().id(), part, holding_.part(part)});
  replay_early_chunks(now);
  return {};
}

void Download::handle_up_to_date(Instant now, ConnId conn, std::uint32_t stripe_index) {
  if (stripe_index >= stripes_.size() || stripes_[stripe_index].conn != conn) return;
  stripes_[stripe_index].heard_at = now;
  stripes_[stripe_index].failures = 0;
  stripes_[stripe_index].excused = true;
}

void Download::handle_not_available(Instant now, ConnId conn) {
  for (Stripe& stripe : stripes_) {
    if (stripe.conn != conn) continue;
    if (stripe.ancestors[stripe.at].id == kOriginId) gone_ = true;
    stripe.subscribed = false;
    leave(now, stripe, wire::FAULT_KIND_NOT_AVAILABLE);
  }
}

bool Download::handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) {
  const Status verdict = holding_.verify(chunk.chunk, chunk.size_bytes, chunk.digest);
  if (verdict.has_value()) {
    Stripe& owner = stripes_[stripe_map_->stripe_of(chunk.chunk)];
    if (owner.missing > 0) --owner.missing;
    for (Stripe& stripe : stripes_) {
      if (stripe.conn != conn) continue;
      stripe.heard_at = now;
      stripe.failures = stripe.damaged_by_origin = 0;
    }
    if (owner.conn == conn) {
      note_pace(now, owner);
      if (owner.excused) end_excuse(now, owner);
      owner.quarter_bytes.back() += chunk.size_bytes;
    }
    owner.fed_at = now;
    count_bytes(now, chunk.size_bytes);
    accept(now, chunk);
    if (!wants_more(owner)) detach(owner);
    return true;
  }
  switch (verdict.error().code) {
    case Errc::kAlreadyExists: return false;
    case Errc::kNotFound:
      if (!uses(conn) || early_.add(conn, chunk)) return false;
      if (holding_.open()) {
        pause(conn);
        return false;
      }
      break;
    case Errc::kCorrupt: say_damaged(conn, chunk.chunk); break;
    default: break;
  }
  actions_.push(action::Log{action::Log::Level::kWarning, verdict.error().message()});
  leave_corrupt(now, conn);
  return false;
}

void Download::say_damaged(ConnId conn, ChunkIndex chunk) {
  if (!uses(conn)) return;
  wire::Message message;
  set_payload(*message.mutable_chunk_damaged(), holding_.manifest().id());
  message.mutable_chunk_damaged()->set_chunk(chunk.value);
  actions_.push(action::Send{conn, std::move(message)});
}

void Download::accept(Instant now, const ChunkArrival& chunk) {
  if (!first_chunk_at_) first_chunk_at_ = now;
  actions_.push(action::StoreChunk{chunk.payload, chunk.chunk, chunk.bytes});
}

Duration Download::patience(const Stripe& stripe) const {
  Duration patience = timeouts_.parent_silence;
  if (stripe.expected_bytes_per_s > 0) {
    const Duration chunks = from_seconds(4.0 * holding_.manifest().chunk_bytes / stripe.expected_bytes_per_s);
    patience = std::max(patience, std::min(chunks, kPatienceMax));
  } else {
    patience = from_seconds(std::min(to_seconds(patience) / stripe.share_hoped_for, to_seconds(kUnknownPatienceMax)));
  }
  return stripe.ancestors.size() > 1 ? patience : kOnlyParentPatience * patience;
}

void Download::handle_timeout(Instant now) {
  if (!due_ || now < *due_) return;
  for (Stripe& stripe : stripes_) {
    if (!wants_more(stripe)) continue;
    if (stripe.retry_at) {
      if (now >= *stripe.retry_at) attach(now, stripe);
      continue;
    }
    if (stripe.drained_from != ConnId{} && now >= stripe.drained_by) end_draining(now, stripe);
    if (!stripe.subscribed) continue;  // dialling has a bound of its own
    if (now - stripe.heard_at >= patience(stripe)) {
      leave(now, stripe, wire::FAULT_KIND_SILENT);
      continue;
    }
    if (stripe.missing > 0 && stripe.ancestors.size() > 1 && now - stripe.fed_at >= timeouts_.starvation) {
      leave(now, stripe, wire::FAULT_KIND_STARVED);
      continue;
    }
    if (!is_judged(stripe) || now < stripe.quarter_start + window(stripe) / kQuartersJudged) continue;
    switch (judge(now, stripe)) {
      case Verdict::kFine: break;
      case Verdict::kSlow: handle_slow(now, stripe); break;
      case Verdict::kSilent:
        if (stripe.ancestors.size() > 1) {
          leave(now, stripe, wire::FAULT_KIND_SILENT);
        } else if (std::exchange(stripe.stopped_before, true)) {
          handle_slow(now, stripe);  // a chunk now and then
        } else {
          stripe.excused = true;  // for a longer silence: patience()
        }
        break;
    }
  }
  due_.reset();
  for (const Stripe& stripe : stripes_) note_due(stripe);
}

void Download::note_due(const Stripe& stripe) {
  if (!wants_more(stripe)) return;
  EarliestDeadline earliest;
  earliest.consider(due_);
  if (stripe.retry_at) {
    earliest.consider(stripe.retry_at);
  } else if (stripe.drained_from != ConnId{}) {
    earliest.consider(stripe.drained_by);
  } else if (stripe.subscribed) {
    earliest.consider(stripe.heard_at + patience(stripe));
    if (is_judged(stripe)) earliest.consider(stripe.quarter_start + window(stripe) / kQuartersJudged);
    if (stripe.missing > 0 && stripe.ancestors.size() > 1) earliest.consider(stripe.fed_at + timeouts_.starvation);
  }
  due_ = earliest.first();
}

bool Download::uses(ConnId conn) const {
  return std::ranges::any_of(stripes_, [&](const Stripe& s) { return s.conn == conn; });
}

std::string Download::parent_name() const {
  if (stripes_.empty() || stripes_[0].ancestors.empty()) return {};
  return stripes_[0].ancestors[stripes_[0].at].name;
}

}  // namespace weightcast
