#include "transport/core/origin/rate_probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace weightcast {
namespace {

// Together, a burst lasts about so long for who has the rate that is known of it.
constexpr double kTogether_s = 0.1;
// What left in a shorter time may still wait in the kernel.
constexpr Duration kSentOver = std::chrono::seconds(1);
constexpr Duration kSentGapMax = std::chrono::seconds(3);

/// A link that has become another one is what somebody asks for who reads that a publication was slow.
action::Log found(std::string text, bool changed) {
  return changed ? action::milestone(std::move(text)) : action::info(std::move(text));
}

/// Whether a rate that was known has changed by as much as misses a plan.
bool has_changed(Rate before, Rate after) {
  const auto [less, more] = std::minmax(before, after);
  return less.limited() && more.bytes_per_s >= kMissFactor * less.bytes_per_s;
}

}  // namespace

Member* RateProbes::connected(PeerId id) {
  Member* member = members_.find(id);
  return member != nullptr && member->connected() ? member : nullptr;
}

void RateProbes::consider(Instant now, const Member& member) {
  if (running_.contains(member.id)) return;
  const bool due = !member.probed_at || now - *member.probed_at >= kEvery;
  if (due && !(member.uplink.limited() && member.downlink.limited())) wanted_.insert(member.id);
  if (!origin_cap_.limited() && members_.connected_count() >= 2 * together_count_) together_wanted_ = true;
}

void RateProbes::doubt_origin() {
  origin_.forget();
  sent_ = Rate{};
  together_wanted_ = true;
}

void RateProbes::handle_lost(PeerId member) {
  wanted_.erase(member);
  running_.erase(member);
}

void RateProbes::advance(Instant now, bool idle) {
  if (!running_.empty()) {
    const bool overdue = now - began_at_ >= kAnswerMax;
    if (idle && !overdue) return;
    // Who does not answer is probed again when it is time to; who was disturbed, next.
    for (const auto& [id, burst] : running_) {
      if (Member* member = connected(id); member != nullptr && overdue) member->probed_at = now;
      if (!overdue && !together_) wanted_.insert(id);
    }
    running_.clear();
    if (together_ && overdue) return end_together(now);  // with what has been said
    together_wanted_ = together_wanted_ || together_;
  }
  if (!idle) return;
  while (!wanted_.empty()) {
    const PeerId next = wanted_.extract(wanted_.begin()).value();
    if (connected(next) == nullptr) continue;
    together_ = false;
    downlink_ = Rate{};
    return begin(now, next, kBytesFirst, false);
  }
  if (together_wanted_) begin_together(now);
}

void RateProbes::begin(Instant now, PeerId id, std::uint32_t bytes, bool from_member) {
  const ConnId conn = members_.find(id)->conn;
  running_[id] = Burst{++last_probe_, bytes, from_member, {}};
  began_at_ = now;
  wire::Message message;
  wire::RateProbe& probe = *message.mutable_rate_probe();
  probe.set_probe(last_probe_);
  if (from_member) {
    probe.set_answer_bytes(bytes);
    return actions_.push(action::Send{conn, std::move(message)});
  }
  for (std::uint32_t left = bytes; left > 0;) {
    const std::uint32_t now_bytes = std::min(left, kBurstMessageBytes);
    left -= now_bytes;
    probe.set_padding(std::string(now_bytes, '\0'));
    probe.set_bytes_left(left);
    actions_.push(action::Send{conn, message});
  }
}

void RateProbes::begin_together(Instant now) {
  together_wanted_ = false;
  together_ = true;
  together_bytes_ = 0;
  together_rate_ = Rate{};
  together_count_ = members_.connected_count();
  std::vector<std::pair<std::uint32_t, PeerId>> bursts;
  for (const auto& [id, member] : members_.all()) {
    if (!member.connected()) continue;
    const Rate rate = planned_rate(member.downlink, member.estimates.downlink);
    const double wanted = rate.limited() ? rate.bytes_per_s * kTogether_s : 4.0 * kBytesFirst;
    bursts.emplace_back(static_cast<std::uint32_t>(std::clamp<double>(wanted, kBytesFirst, kBurstBytesMax)), id);
    if (bursts.size() == kTogetherMax) break;
  }
  std::ranges::sort(bursts);
  together_begun_ = bursts.size();
  for (const auto& [bytes, id] : bursts) begin(now, id, std::min(bytes, 2 * bursts[bursts.size() / 2].first), false);
}

void RateProbes::end_together(Instant now) {
  origin_.handle_measured(std::max(together_rate_, sent_));
  ++ended_count_;
  const bool changed = has_changed(origin_before_, origin_.rate());
  actions_.push(found(fmt::format("this origin's uplink carries {}{}", format_rate(origin_.rate()),
                                  changed ? fmt::format(", not {} any more", format_rate(origin_before_)) : ""),
                      changed));
  origin_before_ = origin_.rate();
  advance(now, true);
}

void RateProbes::handle_probed(Instant now, Member& member, const wire::RateProbed& probed) {
  const auto found = running_.find(member.id);
  if (found == running_.end() || found->second.probe != probed.probe()) return;
  Burst& burst = found->second;
  if (burst.from_member) {
    if (const auto measured = burst.meter.handle(now, probed.padding().size(), probed.bytes_left())) {
      handle_measured(now, member, *measured);
    }
    return;
  }
  if (!together_) {
    return handle_measured(now, member, {Rate{probed.bytes_per_s()}, from_seconds(probed.seconds())});
  }
  together_bytes_ += burst.bytes;
  running_.erase(found);
  if (running_.size() <= (together_begun_ > 2 ? 1u : 0u)) {
    const double took_s = to_seconds(std::max<Duration>(now - began_at_, Duration(1)));
    together_rate_ = std::max(together_rate_, Rate{double(together_bytes_) / took_s});
  }
  if (running_.empty()) end_together(now);
}

void RateProbes::handle_measured(Instant now, Member& member, BurstMeter::Result measured) {
  const Burst burst = running_.extract(member.id).mapped();
  if (measured.lasted < kLastedMin && burst.bytes < kBurstBytesMax) {
    return begin(now, member.id, 4 * burst.bytes, burst.from_member);
  }
  if (!burst.from_member) {
    downlink_ = measured.rate;
    return begin(now, member.id, kBytesFirst, true);
  }
  const Rate down_before = member.planned_downlink(), up_before = member.planned_uplink();
  member.estimates.downlink.handle_measured(downlink_);
  member.estimates.uplink.handle_measured(measured.rate);
  member.probed_at = now;
  ++ended_count_;
  const bool changed =
      has_changed(down_before, member.planned_downlink()) || has_changed(up_before, member.planned_uplink());
  actions_.push(found(
      fmt::format(
          "worker {}: its link carries {} down and {} up{}", member.name, format_rate(member.estimates.downlink.rate()),
          format_rate(member.estimates.uplink.rate()),
          changed ? fmt::format(", not {} down and {} up any more", format_rate(down_before), format_rate(up_before))
                  : ""),
      changed));
  advance(now, true);
}

void RateProbes::handle_sent(Instant now, std::uint64_t bytes_sent) {
  if (sent_since_ && now - *sent_since_ < kSentOver) return;
  if (sent_since_ && now - *sent_since_ <= kSentGapMax) {
    sent_ = std::max(sent_, Rate{double(bytes_sent - sent_before_) / to_seconds(now - *sent_since_)});
    origin_.handle_reached(sent_);
  }
  sent_since_ = now;
  sent_before_ = bytes_sent;
}

}  // namespace weightcast
