#include "transport/core/edge/parent_monitor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "transport/core/deadline.h"

namespace weightcast {
namespace {

constexpr double kSlowShare = 0.5;
// However long parents are silent: else it would take as many halvings back.
constexpr double kShareMin = 1.0 / 1024;
// What is expected goes up only where the new rate would not be called slow for a chunk less.
constexpr double kRecovered = 1.5;
// A rate is judged over so many chunks at least: with fewer, one that is just being sent makes it look like half.
constexpr double kChunksJudged = 12;
constexpr double kChunksPatience = 4;
constexpr int kOnlyParentPatience = 20;
// However slow the plan says that a parent is.
constexpr Duration kPatienceMax = std::chrono::hours(1);
// Of a node that is late: a beat takes as many turns of a parent and of this node.
constexpr int kLatePatience = 4;
constexpr Duration kAllowanceMax = std::chrono::seconds(4);
// Where the plan says nothing: the largest chunk at 1 Mbit/s takes half of it.
constexpr Duration kUnknownPatienceMax = std::chrono::minutes(1);

}  // namespace

void ParentMonitor::expect(double bytes_per_s, std::uint32_t streams) {
  streams_ = streams;
  predicted_bytes_per_s_ = std::isfinite(bytes_per_s) ? bytes_per_s : 0;
  expected_bytes_per_s_ = predicted_bytes_per_s_ * expected_share_;
}

void ParentMonitor::expect_less() {
  const double share = std::max(kShareMin, expected_share_ * kSlowShare);
  expected_bytes_per_s_ *= share / expected_share_;
  expected_share_ = share;
}

void ParentMonitor::expect_more() {
  const double share = std::min(1.0, expected_share_ / kSlowShare);
  expected_bytes_per_s_ *= share / expected_share_;
  expected_share_ = share;
}

void ParentMonitor::handle_asked(Instant now) {
  handle_heard(now);
  fed_at_ = steady_since_ = now;
  said_up_to_date_ = false;
  restart_window(now);
}

void ParentMonitor::handle_up_to_date(Instant now) {
  handle_heard(now);
  parent_idle_ = true;
  said_up_to_date_ = true;
}

void ParentMonitor::handle_chunk(Instant now, std::uint32_t bytes, bool from_parent, const Edge& edge) {
  if (from_parent) {
    if (now - fed_at_ > timeouts_->parent_silence / 2) steady_since_ = now;
    if (expected_bytes_per_s_ <= 0 && now - steady_since_ >= timeouts_->rate_window) {
      steady_since_ = now;
      expect_more();
    }
    if (parent_idle_) {
      restart_window(now);
      if (expected_bytes_per_s_ > 0) {
        quarters_ = kQuarters - 1;
        std::fill_n(quarter_bytes_.begin(), kQuarters - 1,
                    expected_bytes_per_s_ * to_seconds(window(edge)) / kQuarters);
      }
    }
    quarter_bytes_.back() += bytes;
    said_up_to_date_ = false;
    chunks_beside_max_ = kChunksBesideMin;
  }
  fed_at_ = hungry_since_ = reported_at_ = now;
}

void ParentMonitor::handle_chunk_beside(Instant now, bool same_parent) {
  hungry_since_ = reported_at_ = now;
  if (!same_parent) return;
  ++chunks_beside_;
  parent_heard_at_ = now;
}

void ParentMonitor::handle_grown(Instant now, bool was_missing) {
  if (!was_missing) {
    fed_at_ = now;  // nothing was to come
    handle_hungry(now);
  }
  restart_window(now);
}

void ParentMonitor::handle_left(Verdict verdict, bool again) {
  // One silent parent says nothing of this node's own link; one after the other does.
  if (verdict == Verdict::kSlow || (verdict == Verdict::kSilent && again)) expect_less();
}

void ParentMonitor::handle_kept(Instant now) {
  expect_less();
  restart_window(now);
}

void ParentMonitor::restart_window(Instant now) {
  quarter_start_ = now;
  quarter_bytes_ = {};
  quarters_ = 0;
  parent_idle_ = false;
}

Duration ParentMonitor::window(const Edge& edge) const {
  return std::max(timeouts_->rate_window, from_seconds(kChunksJudged * edge.chunk_bytes / expected_bytes_per_s_));
}

Duration ParentMonitor::patience(const Edge& edge) const {
  const double silence_s = to_seconds(timeouts_->parent_silence);
  Duration patience = from_seconds(std::min(silence_s / expected_share_, to_seconds(kUnknownPatienceMax)));
  if (expected_bytes_per_s_ > 0) {
    const Duration chunks = from_seconds(kChunksPatience * edge.chunk_bytes / expected_bytes_per_s_);
    patience = std::max(timeouts_->parent_silence, std::min(chunks, kPatienceMax));
  }
  return (edge.only_parent ? kOnlyParentPatience * patience : patience) + allowance(edge.late);
}

Duration ParentMonitor::allowance(Duration late) { return std::min(kLatePatience * late, kAllowanceMax); }

Duration ParentMonitor::starvation_time(const Edge& edge, Duration least, std::uint32_t streams) const {
  if (predicted_bytes_per_s_ <= 0) return least;
  const Duration chunks = from_seconds(kChunksPatience * edge.chunk_bytes / (predicted_bytes_per_s_ * streams));
  return std::max(least, std::min(chunks, kPatienceMax));
}

ParentMonitor::Verdict ParentMonitor::judge(Instant now, const Edge& edge) {
  const Duration stall = timeouts_->parent_silence + allowance(edge.late);
  if (edge.missing && chunks_beside_ >= chunks_beside_max_ && now - heard_at_ >= stall) {
    chunks_beside_max_ = std::min(2 * chunks_beside_max_, kChunksBesideMax);
    chunks_beside_ = 0;
    return Verdict::kStalled;
  }
  // A parent that is busy with this child's other streams is not silent, however long this one waits for its turn.
  if (now - parent_heard_at_ >= patience(edge)) return Verdict::kSilent;
  if (edge.missing && !edge.only_parent && now - fed_at_ >= starvation_time(edge, timeouts_->starvation)) {
    return Verdict::kStarved;
  }
  if (!is_judged(edge) || now < quarter_start_ + window(edge) / kQuarters) return Verdict::kFine;
  const Verdict verdict = judge_window(now, edge);
  if (verdict != Verdict::kSilent || !edge.only_parent) return verdict;
  if (std::exchange(stalled_before_, true)) return Verdict::kSlow;  // a chunk now and then
  parent_idle_ = true;                                              // for a longer silence: patience()
  return Verdict::kFine;
}

ParentMonitor::Verdict ParentMonitor::judge_window(Instant now, const Edge& edge) {
  // Known to be as fast as expected when none of the quarters is one that was made up.
  constexpr std::uint32_t kMadeUp = kQuarters - 1;
  constexpr std::uint32_t kKnown = kMadeUp + kQuarters;
  // A quarter that was noticed late counts as the longer one that it was.
  const double late = to_seconds(now - quarter_start_) / to_seconds(window(edge) / kQuarters);
  quarters_ = std::min(quarters_ + 1, kKnown);
  const double bytes = std::accumulate(quarter_bytes_.begin(), quarter_bytes_.end(), 0.0);
  const double expected = expected_bytes_per_s_ * to_seconds(window(edge)) * (kMadeUp + late) / kQuarters;
  const bool nothing_came = quarter_bytes_[2] + quarter_bytes_[3] == 0;
  std::shift_left(quarter_bytes_.begin(), quarter_bytes_.end(), 1);
  quarter_bytes_.back() = 0;
  quarter_start_ = now;
  if (quarters_ < kQuarters) return Verdict::kFine;
  if (bytes < kSlowShare * expected) return nothing_came ? Verdict::kSilent : Verdict::kSlow;
  if (quarters_ == kKnown) {
    stalled_before_ = false;
    if (bytes >= kRecovered * expected) expect_more();
  }
  return Verdict::kFine;
}

std::optional<ParentMonitor::Starvation> ParentMonitor::starvation(Instant now, const Edge& edge) {
  const std::optional<Instant> due = starvation_due(edge);
  if (!due || now < *due) return std::nullopt;
  reported_at_ = now;
  return Starvation{said_up_to_date_, now - hungry_since_};
}

Instant ParentMonitor::deadline(const Edge& edge) const {
  EarliestDeadline earliest;
  earliest.consider(parent_heard_at_ + patience(edge));
  if (is_judged(edge)) earliest.consider(quarter_start_ + window(edge) / kQuarters);
  if (edge.missing && !edge.only_parent) earliest.consider(fed_at_ + starvation_time(edge, timeouts_->starvation));
  if (edge.missing && chunks_beside_ >= chunks_beside_max_) {
    earliest.consider(heard_at_ + timeouts_->parent_silence + allowance(edge.late));
  }
  return *earliest.first();
}

std::optional<Instant> ParentMonitor::starvation_due(const Edge& edge) const {
  if (!edge.missing) return std::nullopt;
  const Duration period = timeouts_->starving / 2;
  return std::max(hungry_since_ + starvation_time(edge, timeouts_->starving, streams_), reported_at_ + period);
}

}  // namespace weightcast
