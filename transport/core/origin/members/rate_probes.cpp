#include "transport/core/origin/members/rate_probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace weightcast {
namespace {

// Together, a burst lasts about so long for who has the rate that is known of it.
constexpr double kTogether_s = 0.1;
// An origin that sends at less than this share of its uplink has nothing to send but to stragglers.
constexpr double kBusyShare = 0.1;
constexpr Rate kBusyWhenUnknown = Rate::bits(2e6);

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
  const bool due = !member.probe_due || now >= *member.probe_due;
  if (due && !(member.uplink.limited() && member.downlink.limited())) wanted_.insert(member.id);
  if (!origin_cap_.limited() && members_.connected_count() >= 2 * together_count_) together_wanted_ = true;
}

void RateProbes::doubt_origin() {
  sent_.forget();
  together_wanted_ = together_first_ = true;
  together_due_ = Instant{};
}

void RateProbes::handle_lost(PeerId member) {
  wanted_.erase(member);
  running_.erase(member);
}

void RateProbes::advance(Instant now, Traffic traffic) {
  traffic_ = std::move(traffic);
  advance(now);
}

void RateProbes::advance(Instant now) {
  const bool overdue = now - began_at_ >= kAnswerMax;
  if (!running_.empty() && (traffic_.published || overdue)) give_up(now, overdue);
  if (!running_.empty()) return;
  if (together_) return end_together(now);  // the last that had not answered is gone
  if (!traffic_.published) begin_next(now);
}

/// It asks a member that is overdue again when it is time to, and one that was disturbed next.
void RateProbes::give_up(Instant now, bool overdue) {
  for (const auto& [id, burst] : running_) {
    Member* member = connected(id);
    if (together_ || member == nullptr) continue;
    if (overdue) {
      member->probe_due = now + kEvery;
    } else {
      wanted_.insert(id);
    }
  }
  running_.clear();
  if (!together_ || overdue) return;
  together_.reset();
  together_wanted_ = true;
}

void RateProbes::begin_next(Instant now) {
  const bool together = together_wanted_ && now >= together_due_;
  if (together && together_first_) return begin_together(now);
  Member* next = nullptr;
  for (auto at = wanted_.begin(); at != wanted_.end();) {
    Member* member = connected(*at);
    if (member == nullptr) {
      at = wanted_.erase(at);
      continue;
    }
    const bool may = !traffic_.others.contains(*at);
    if (may && (next == nullptr || member->probe_due < next->probe_due)) next = member;
    ++at;
  }
  if (next != nullptr) {
    wanted_.erase(next->id);
    next->probe_due = now + kRetry;  // should it be lost before it has answered
    downlink_ = Rate{};
    began_at_ = now;
    return begin(next->id, kBytesFirst, false);
  }
  if (together) begin_together(now);
}

std::uint32_t RateProbes::burst_bytes_max(const Member& member, bool from_member) const {
  const Rate cap = from_member ? member.uplink : origin_cap_;
  if (!cap.limited()) return kBurstBytesMax;
  return static_cast<std::uint32_t>(
      std::clamp<double>(cap.bytes_per_s * to_seconds(kBurstOfCap), kBytesFirst, kBurstBytesMax));
}

void RateProbes::begin(PeerId id, std::uint32_t bytes, bool from_member) {
  const ConnId conn = members_.find(id)->conn;
  running_[id] = Burst{++last_probe_, bytes, from_member, {}, {}};
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
  together_wanted_ = together_first_ = false;
  together_count_ = members_.connected_count();
  // Members that have answered a probe of their own come first: they will answer this one, too.
  std::vector<const Member*> asked;
  for (const auto& [id, member] : members_.all()) {
    if (member.connected()) asked.push_back(&member);
  }
  std::ranges::stable_partition(asked, [](const Member* member) { return member->estimates.downlink.known(); });
  if (asked.size() > kTogetherMax) asked.resize(kTogetherMax);
  if (asked.empty()) return;

  std::vector<std::pair<std::uint32_t, PeerId>> bursts;
  for (const Member* member : asked) {
    const Rate rate = member->planned_downlink();
    const double wanted = rate.limited() ? rate.bytes_per_s * kTogether_s : 4.0 * kBytesFirst;
    bursts.emplace_back(static_cast<std::uint32_t>(std::clamp<double>(wanted, kBytesFirst, kBurstBytesMax)),
                        member->id);
  }
  std::ranges::sort(bursts);
  const std::uint32_t most = 2 * bursts[bursts.size() > 2 ? bursts.size() / 2 : 0].first;
  together_ = Together{.begun = bursts.size()};
  began_at_ = now;
  for (const auto& [bytes, id] : bursts) begin(id, std::min(bytes, most), false);
}

void RateProbes::end_together(Instant now) {
  const Rate measured = std::max(together_->best, sent_.best());
  const bool answered = together_->best.limited();
  together_.reset();
  if (!answered) {
    together_wanted_ = true;
    together_due_ = now + kRetry;
    return advance(now);
  }
  origin_.handle_measured(measured);
  ++ended_count_;
  const bool changed = has_changed(origin_before_, origin_.rate());
  actions_.push(
      action::milestone(fmt::format("this origin's uplink carries {}{}", format_rate(origin_.rate()),
                                    changed ? fmt::format(", not {} any more", format_rate(origin_before_)) : "")));
  origin_before_ = origin_.rate();
  advance(now);
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
  together_->answered_bytes += burst.bytes;
  ++together_->answered;
  running_.erase(found);
  if (2 * together_->answered >= together_->begun) {
    const double took_s = to_seconds(std::max<Duration>(now - began_at_, Duration(1)));
    together_->best = std::max(together_->best, Rate{double(together_->answered_bytes) / took_s});
  }
  if (running_.empty()) end_together(now);
}

void RateProbes::handle_measured(Instant now, Member& member, BurstMeter::Result measured) {
  const Burst burst = running_.extract(member.id).mapped();
  const std::uint32_t most = burst_bytes_max(member, burst.from_member);
  if (measured.lasted < kLastedMin && burst.bytes < most) {
    return begin(member.id, std::min(4 * burst.bytes, most), burst.from_member);
  }
  const Rate down_before = member.planned_downlink(), up_before = member.planned_uplink();
  const Rate known = burst.from_member ? up_before : down_before;
  const bool has_time = now - began_at_ < kAnswerMax / 4;
  if (!burst.before && has_time && known.limited() && kMissFactor * measured.rate.bytes_per_s <= known.bytes_per_s) {
    begin(member.id, burst.bytes, burst.from_member);
    running_.at(member.id).before = measured.rate;
    return;
  }
  const Rate rate = std::max(measured.rate, burst.before.value_or(Rate{0}));
  if (!burst.from_member) {
    downlink_ = rate;
    return begin(member.id, kBytesFirst, true);
  }
  member.estimates.downlink.handle_measured(downlink_);
  member.estimates.uplink.handle_measured(rate);
  member.probe_due = now + kEvery;
  ++ended_count_;
  const bool changed =
      has_changed(down_before, member.planned_downlink()) || has_changed(up_before, member.planned_uplink());
  actions_.push(action::caused_by(
      member.name,
      action::info(fmt::format(
          "worker {}: its link carries {} down and {} up{}", member.name, format_rate(member.estimates.downlink.rate()),
          format_rate(member.estimates.uplink.rate()),
          changed ? fmt::format(", not {} down and {} up any more", format_rate(down_before), format_rate(up_before))
                  : ""))));
  advance(now);
}

void RateProbes::handle_sent(Instant now, std::uint64_t bytes_sent) {
  const std::optional<Rate> window = sent_.handle_sent(now, bytes_sent);
  if (!window) return;
  origin_.handle_reached(sent_.best());
  const Rate uplink = planned_origin_uplink();
  const double busy = uplink.limited() ? kBusyShare * uplink.bytes_per_s : kBusyWhenUnknown.bytes_per_s;
  if (window->bytes_per_s >= busy) busy_at_ = now;
}

}  // namespace weightcast
