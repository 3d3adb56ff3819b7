#pragma once

#include <bit>
#include <cstdint>

namespace weightcast {

/// The upper half of a product.
[[nodiscard]] inline std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  __extension__ typedef unsigned __int128 Wide;
  return std::uint64_t((static_cast<Wide>(a) * b) >> 64);
}

/// ln(x) for x > 0, to about 1e-12, from IEEE additions, multiplications and divisions only. The models that the
/// encoder writes depend on it, and the C library's log() may differ in its last bit from one machine to the next.
[[nodiscard]] inline double portable_ln(double x) {
  constexpr double kLn2 = 0.69314718055994530942;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = int((bits >> 52) & 0x7ff) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (mantissa > 1.41421356237309504880) {
    mantissa *= 0.5;
    ++exponent;
  }
  // ln m = 2 artanh((m - 1) / (m + 1)); |z| < 0.1716, so that z^17 is below 1e-13.
  const double z = (mantissa - 1) / (mantissa + 1);
  const double z2 = z * z;
  double sum = 0;
  for (int n = 15; n >= 1; n -= 2) sum = sum * z2 + 1.0 / n;
  return exponent * kLn2 + 2 * z * sum;
}

[[nodiscard]] inline double portable_log2(double x) { return portable_ln(x) * 1.44269504088896340736; }

}  // namespace weightcast
