#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "base/units.h"

namespace weightcast {

/// What outlives the process: times as ages, because an Instant means nothing after a restart.
struct PeerScoreRecord {
  std::vector<Rate> rates;  ///< of the last transfers, the oldest first; at most PeerScore::kRatesMax
  std::uint64_t ok = 0;
  std::uint64_t failed = 0;
  std::uint32_t ok_in_a_row = 0;
  std::uint32_t failed_in_a_row = 0;
  Duration age{};  ///< since the last transfer
  bool operator==(const PeerScoreRecord&) const = default;
};

/// How good a member has been at passing weights on: ECHO-2 (arXiv 2602.02192), appendix C.3, in [0, 1].
///   score = (0.50 speed + 0.35 success + 0.15 stability) * freshness
/// Pure: the caller says what time it is. Held by the origin, one per member.
/// Invariant: at most one of ok_in_a_row and failed_in_a_row is not zero.
class PeerScore {
 public:
  static constexpr double kWithoutHistory = 0.55;
  static constexpr std::size_t kRatesMax = 10;

  PeerScore() = default;
  /// Values out of range are brought into it, as the record may come from a file. `now` is the time of reading.
  PeerScore(const PeerScoreRecord& record, Instant now);

  void handle_ok(Instant now, Rate rate);
  void handle_failed(Instant now);

  /// `line_rate` is b, the rate at which a transfer counts as full speed; without a limit every one does.
  [[nodiscard]] double score(Instant now, Rate line_rate) const;

  /// The mean of the last kRatesMax transfers; nothing before the first.
  [[nodiscard]] std::optional<Rate> rate() const;
  /// Whether it has not been seen to forward anything.
  [[nodiscard]] bool empty() const { return ok_ + failed_ == 0; }
  [[nodiscard]] PeerScoreRecord record(Instant now) const;

 private:
  [[nodiscard]] double stability() const;

  std::vector<Rate> rates_;
  std::uint64_t ok_ = 0;
  std::uint64_t failed_ = 0;
  std::uint32_t ok_in_a_row_ = 0;
  std::uint32_t failed_in_a_row_ = 0;
  Instant last_{};
};

}  // namespace weightcast
