#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "base/units.h"

namespace weightcast {

/// Padding of a burst travels in messages of this size.
inline constexpr std::uint32_t kBurstMessageBytes = 32 * 1024;
/// The largest burst that an origin sends or asks for.
inline constexpr std::uint32_t kBurstBytesMax = 4 * 1024 * 1024;

/// Measures how fast one burst of padding arrives: its second half over the time that this half took. The first half
/// covers what a token bucket lets pass at once, and TCP's slow start (packet trains: Dovrolis, Ramanathan and Moore,
/// INFOCOM 2001). Pure. Used by the end that receives. Invariant: at most kBurstBytesMax count.
class BurstMeter {
 public:
  struct Result {
    Rate rate{};
    Duration lasted{};  ///< the second half
  };

  /// A message of the burst: it has `bytes` of padding, and `bytes_left` follow. A message that does not go on where
  /// the last one ended begins a burst. Returns what was measured with the last message.
  std::optional<Result> handle(Instant now, std::uint64_t bytes, std::uint64_t bytes_left);

 private:
  std::uint64_t total_bytes_ = 0;
  std::uint64_t left_bytes_ = 0;  // after the last message
  std::uint64_t half_bytes_ = 0;  // that had arrived at half_at_
  std::optional<Instant> half_at_;
};

}  // namespace weightcast
