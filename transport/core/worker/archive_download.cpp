#include "transport/core/worker/archive_download.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/units.h"
#include "transport/core/deadline.h"

namespace weightcast {
namespace {

// How often ranges and parents are looked at.
constexpr Duration kLookEvery = std::chrono::milliseconds(500);
// Parents' rates are measured over this; before, the plan's count.
constexpr Duration kMeasureOver = std::chrono::seconds(2);
// Ranges that take less are made longer, and those that take more shorter.
constexpr Duration kRangeShort = std::chrono::milliseconds(500);
constexpr Duration kRangeLong = std::chrono::seconds(2);
// Of the downlink that parents leave: parents may become faster by a tenth, and less than a twentieth is not worth it.
constexpr double kParentsGrow = 1.1;
constexpr double kRoomMin = 0.05;
// Of what is still to come from parents, all ranges that are asked for at once take a quarter.
constexpr std::uint32_t kShareOfRest = 4;
// What parents must bring a range's rest sooner by.
constexpr double kSooner_s = 0.25;
constexpr int kChunksPatience = 4;

/// It would answer the same again.
bool is_final(Errc code) {
  return code == Errc::kCorrupt || code == Errc::kUnsupported || code == Errc::kInvalidArgument;
}

}  // namespace

void ArchiveDownload::handle_ready(Instant now) {
  if (state_ != State::kWaiting) return;
  parents_bytes_per_s_ = download_.predicted_bytes_per_s();
  parents_known_ = parents_bytes_per_s_ > 0;
  measured_at_ = now;
  if (download_.wanted_of_parents() == 0) return;
  look_at_ = now + kLookEvery;
  if (allowance()) find(now);
}

void ArchiveDownload::find(Instant now) {
  state_ = State::kFinding;
  finding_ = ++requests_;
  retry_at_ = now + patience();
  actions_.push(action::FindArchived{finding_, holding_.shared_manifest()});
}

bool ArchiveDownload::handle_found(Instant now, std::uint32_t request, Result<std::vector<ContentDigest>> digests) {
  if (state_ != State::kFinding || request != finding_) return false;
  retry_at_.reset();
  if (!digests.has_value()) {
    fail(now, digests.error());
    return false;
  }
  const Manifest& manifest = holding_.manifest();
  Status right;
  if (digests->size() != manifest.chunk_count()) {
    right = weightcast::fail(Errc::kCorrupt, Op::kVerify, "its digests are of another number of chunks");
  }
  for (std::uint32_t part = 0; part < manifest.part_count() && right.has_value(); ++part) {
    const std::size_t first = std::size_t{part} * manifest.part_chunks;
    right = download_.handle_digest_part_elsewhere(
        now, part, std::as_bytes(std::span(*digests).subspan(first, manifest.part_size(part))));
  }
  if (!right.has_value()) {
    fail(now, right.error());
    return false;
  }
  state_ = State::kReading;
  trouble_.clear();
  look_at_ = now + kLookEvery;
  ask_for_more(now);
  return true;
}

std::optional<Rate> ArchiveDownload::allowance() const {
  const ArchiveLimits& limits = *config_.archive;
  if (left_to_parents_ && parents_bytes_per_s_ > 0) return std::nullopt;
  const bool is_worth_it =
      !limits.below.limited() || (parents_known_ && parents_bytes_per_s_ < limits.below.bytes_per_s);
  if (!is_worth_it) return std::nullopt;
  Rate rate = limits.rate;
  if (config_.downlink.limited()) {
    const double room = config_.downlink.bytes_per_s - kParentsGrow * parents_bytes_per_s_;
    if (room < kRoomMin * config_.downlink.bytes_per_s) return std::nullopt;
    if (!rate.limited() || rate.bytes_per_s > room) rate = Rate{room};
  }
  return rate;
}

void ArchiveDownload::ask_for_more(Instant now) {
  if (state_ != State::kReading || disk_is_behind_ || now < next_range_at_) return;
  const std::optional<Rate> rate = allowance();
  if (!rate) return;
  const Manifest& manifest = holding_.manifest();
  while (ranges_.size() < config_.archive->ranges_at_once) {
    const std::uint32_t wanted = download_.wanted_of_parents();
    if (wanted == 0) return;
    std::optional<ChunkIndex> last = download_.last_wanted_of_parents(below_);
    if (!last) last = download_.last_wanted_of_parents(ChunkIndex{UINT32_MAX});
    const std::uint32_t share = wanted / (kShareOfRest * config_.archive->ranges_at_once);
    const auto most = static_cast<std::uint32_t>(range_bytes_ / manifest.chunk_bytes);
    const std::uint32_t chunks = std::max<std::uint32_t>(1, std::min(share, most));
    Range range{*last, 1, 0, now, now};
    while (range.chunks < chunks && range.first.value > 0 &&
           download_.is_wanted_of_parents(ChunkIndex{range.first.value - 1})) {
      --range.first.value;
      ++range.chunks;
    }
    below_ = range.first;
    download_.expect_elsewhere({range.first, range.chunks});
    ranges_.emplace(++requests_, range);
    actions_.push(action::ReadArchived{requests_, holding_.shared_manifest(), range.first, range.chunks, *rate});
  }
}

bool ArchiveDownload::handle_chunk(Instant now, std::uint32_t request, const ChunkArrival& chunk) {
  const auto found = ranges_.find(request);
  if (found == ranges_.end()) return false;
  Range& range = found->second;
  const bool in_range = chunk.chunk >= range.first && chunk.chunk.value - range.first.value < range.chunks;
  using Verdict = ChunkVerifier::Verdict;
  const Verdict verdict = in_range ? download_.handle_chunk_elsewhere(now, chunk) : Verdict::kForeign;
  if (verdict != Verdict::kNew && verdict != Verdict::kKnown) {
    fail(now, weightcast::fail(Errc::kCorrupt, Op::kVerify,
                               fmt::format("chunk {} is not what was published", chunk.chunk.value)));
    return false;
  }
  failures_ = 0;
  trouble_.clear();
  range.heard_at = now;
  ++range.brought;
  if (verdict == Verdict::kNew) bytes_ += chunk.size_bytes;
  leave_to_parents(now);
  return verdict == Verdict::kNew;
}

void ArchiveDownload::handle_ended(Instant now, std::uint32_t request, const Status& status) {
  const auto found = ranges_.find(request);
  if (found == ranges_.end()) return;
  const Range range = found->second;
  if (!status.has_value() && is_final(status.error().code)) return fail(now, status.error());
  if (!status.has_value() || range.brought < range.chunks) {
    const Error why = status.has_value()
                          ? weightcast::fail(Errc::kClosed, Op::kReceive, "a range ended before it was complete")
                          : status.error();
    return fail_ranges(
        now, [&](const Range& each) { return each.first == range.first; }, why);
  }
  ranges_.erase(found);
  const Duration took = now - range.asked_at;
  if (took < kRangeShort) range_bytes_ = std::min(kRangeBytesMax, 2 * range_bytes_);
  if (took > kRangeLong) range_bytes_ = std::max<std::uint64_t>(1, range_bytes_ / 2);
  ask_for_more(now);
}

bool ArchiveDownload::drop(Instant now, const std::function<bool(const Range&)>& is_over) {
  std::vector<Download::ChunkRange> dropped;
  for (auto range = ranges_.begin(); range != ranges_.end();) {
    if (!is_over(range->second)) {
      ++range;
      continue;
    }
    actions_.push(action::EndArchived{range->first});
    dropped.push_back({range->second.first, range->second.chunks});
    range = ranges_.erase(range);
  }
  if (!dropped.empty()) download_.ask_again(now, dropped);
  return !dropped.empty();
}

void ArchiveDownload::note_trouble(const Error& why, std::string_view then) {
  trouble_ = why.message();
  if (std::exchange(told_, true)) return;
  actions_.push(action::warning(
      fmt::format("version {}: the archive: {}; {}", holding_.manifest().version.value, trouble_, then)));
}

Duration ArchiveDownload::next_pause() {
  return std::min(kPauseMax, kPauseMin * (std::int64_t{1} << std::min(failures_++, 6U)));
}

void ArchiveDownload::fail_ranges(Instant now, const std::function<bool(const Range&)>& is_over, const Error& why) {
  if (!drop(now, is_over)) return;
  note_trouble(why, "peers bring the rest of that, and it is asked again later");
  next_range_at_ = now + next_pause();
}

void ArchiveDownload::fail(Instant now, const Error& why) {
  (void)drop(now, [](const Range&) { return true; });
  if (state_ == State::kFinding) actions_.push(action::EndArchived{finding_});
  const bool is_over = is_final(why.code);
  note_trouble(why, is_over ? "peers alone bring this version" : "peers go on alone, and it is asked again later");
  state_ = is_over ? State::kGivenUp : State::kPausing;
  look_at_.reset();
  retry_at_.reset();
  if (!is_over) retry_at_ = now + next_pause();
}

void ArchiveDownload::handle_disk_behind(Instant now, bool is_behind) {
  disk_is_behind_ = is_behind;
  if (!is_behind) ask_for_more(now);
}

void ArchiveDownload::measure_parents(Instant now) {
  const Duration elapsed = now - measured_at_;
  if (elapsed < kMeasureOver) return;
  const std::uint64_t bytes = download_.feed().bytes();
  // Once all else is expected of the archive, parents have nothing to send, and the last measurement holds.
  if (download_.wanted_of_parents() > 0 || bytes > measured_bytes_) {
    parents_bytes_per_s_ = double(bytes - measured_bytes_) / to_seconds(elapsed);
    parents_known_ = true;
  }
  measured_at_ = now;
  measured_bytes_ = bytes;
}

void ArchiveDownload::leave_to_parents(Instant now) {
  if (download_.wanted_of_parents() > 0 || parents_bytes_per_s_ <= 0) return;
  const double chunk_bytes = holding_.manifest().chunk_bytes;
  const bool any = drop(now, [&](const Range& range) {
    const double left = double(range.chunks - std::min(range.brought, range.chunks)) * chunk_bytes;
    const double elapsed_s = to_seconds(now - range.asked_at);
    const double pace = double(range.brought) * chunk_bytes / elapsed_s;
    if (left <= 0 || elapsed_s < kSooner_s) return false;
    return pace <= 0 || left / pace > left / parents_bytes_per_s_ + kSooner_s;
  });
  if (!any) return;
  left_to_parents_ = true;
  // They are judged by what they bring of it.
  measured_at_ = now;
  measured_bytes_ = download_.feed().bytes();
}

Duration ArchiveDownload::patience() const {
  const Rate rate = config_.archive->rate;
  if (!rate.limited()) return kPatience;
  const double chunks = double(kChunksPatience) * config_.archive->ranges_at_once;
  return std::max(kPatience, from_seconds(chunks * holding_.manifest().chunk_bytes / rate.bytes_per_s));
}

void ArchiveDownload::handle_timeout(Instant now) {
  if (retry_at_ && now >= *retry_at_) {
    retry_at_.reset();
    if (state_ == State::kFinding) {
      return fail(now, weightcast::fail(Errc::kTimedOut, Op::kReceive, "it does not answer"));
    }
    if (!is_done()) {
      look_at_ = measured_at_ = now;
      measured_bytes_ = download_.feed().bytes();
      state_ = State::kWaiting;
    }
  }
  if (!look_at_ || now < *look_at_) return;
  look_at_ = now + kLookEvery;
  measure_parents(now);
  if (state_ == State::kReading) {
    fail_ranges(
        now, [&](const Range& range) { return now - range.heard_at >= patience(); },
        weightcast::fail(Errc::kTimedOut, Op::kReceive,
                         fmt::format("nothing came for {:.0f} s", to_seconds(patience()))));
    leave_to_parents(now);
    ask_for_more(now);
  } else if (state_ == State::kWaiting && download_.wanted_of_parents() > 0 && allowance()) {
    find(now);
  }
  if (is_done()) look_at_.reset();
}

std::optional<Instant> ArchiveDownload::poll_deadline() const {
  EarliestDeadline earliest;
  earliest.consider(retry_at_);
  earliest.consider(look_at_);
  return earliest.first();
}

void ArchiveDownload::cancel() {
  for (const auto& [request, range] : ranges_) actions_.push(action::EndArchived{request});
  if (state_ == State::kFinding) actions_.push(action::EndArchived{finding_});
  ranges_.clear();
  state_ = State::kGivenUp;
  retry_at_.reset();
  look_at_.reset();
}

}  // namespace weightcast
