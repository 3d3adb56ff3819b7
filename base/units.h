#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weightcast {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

/// A data rate. Bits for networks (decimal), bytes for memory and disks (binary); zero means "no limit".
struct Rate {
  double bytes_per_s = 0;

  [[nodiscard]] static constexpr Rate bits(double bits_per_s) { return Rate{bits_per_s / 8}; }
  [[nodiscard]] constexpr double bits_per_s() const { return bytes_per_s * 8; }
  [[nodiscard]] constexpr bool limited() const { return bytes_per_s > 0; }
  constexpr auto operator<=>(const Rate&) const = default;
};

/// Reads "300mbit", "1.5gbit", "12MiB/s", "800kbit", "unlimited". Decimal for bits, binary for KiB, decimal for kB.
/// Errors: kInvalidArgument, which names the text and the forms that are understood.
[[nodiscard]] Result<Rate> parse_rate(std::string_view text);

/// Reads "64MiB", "1GiB", "500kB", "4096". Errors: kInvalidArgument, as above; kTooLarge above 2^63 - 1.
[[nodiscard]] Result<std::uint64_t> parse_bytes(std::string_view text);

/// "300 Mbit/s", "unlimited".
[[nodiscard]] std::string format_rate(Rate rate);

/// "64.0 MiB".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

}  // namespace weightcast
