#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace weightcast {

/// A natural number of up to kBitsMax bits. A larger one does not fit, nor does what is computed from one: fits()
/// tells, and nothing else of it has a meaning. So time and memory of each operation are bounded, whatever comes in.
class Natural {
 public:
  static constexpr std::size_t kBitsMax = 1024;  ///< 308 decimal digits

  Natural(std::uint64_t value = 0);  // NOLINT(google-explicit-constructor): numbers mix with literals
  [[nodiscard]] static Natural unfit();

  [[nodiscard]] bool fits() const { return fits_; }
  [[nodiscard]] bool is_zero() const { return size_ == 0; }
  [[nodiscard]] std::size_t bits() const;
  /// The number, if it takes up to 64 bits.
  [[nodiscard]] std::optional<std::uint64_t> small() const;
  /// In decimal digits.
  [[nodiscard]] std::string text() const;

  struct Division;
  /// `divisor` is not 0.
  [[nodiscard]] Division divided_by(const Natural& divisor) const;
  /// What is left over `divisor`, which is 1 to 2^32 - 1.
  [[nodiscard]] std::uint32_t remainder(std::uint32_t divisor) const;
  /// The largest number whose `degree`-th power is no larger than this one; `degree` is 2 to 64.
  [[nodiscard]] Natural root(unsigned degree) const;

  friend Natural operator+(const Natural& a, const Natural& b);
  /// `a` is not below `b`.
  friend Natural operator-(const Natural& a, const Natural& b);
  friend Natural operator*(const Natural& a, const Natural& b);
  friend bool operator==(const Natural& a, const Natural& b) { return (a <=> b) == 0; }
  friend std::strong_ordering operator<=>(const Natural& a, const Natural& b);

 private:
  static constexpr std::size_t kLimbs = kBitsMax / 32;

  [[nodiscard]] Natural shifted_left(std::size_t bits) const;
  void set_bit(std::size_t bit);
  void trim();

  std::array<std::uint32_t, kLimbs> limbs_{};  // the least first; 0 from size_ on
  std::size_t size_ = 0;
  bool fits_ = true;
};

struct Natural::Division {
  Natural quotient, remainder;
};

/// The greatest common divisor; of 0 and b it is b.
[[nodiscard]] Natural gcd(Natural a, Natural b);

/// A rational number exactly, or one that does not fit: see Natural. Invariant: numerator and denominator have no
/// common divisor, the denominator is not 0, and 0 is not negative.
class ExactRational {
 public:
  ExactRational(std::uint64_t value = 0) : numerator_(value) {}  // NOLINT(google-explicit-constructor)
  /// One over a denominator of 0 does not fit.
  ExactRational(bool negative, Natural numerator, Natural denominator);

  [[nodiscard]] bool fits() const { return numerator_.fits() && denominator_.fits(); }
  [[nodiscard]] bool is_zero() const { return numerator_.is_zero(); }
  [[nodiscard]] bool is_negative() const { return negative_; }
  [[nodiscard]] const Natural& numerator() const { return numerator_; }
  [[nodiscard]] const Natural& denominator() const { return denominator_; }
  [[nodiscard]] ExactRational negated() const;
  /// "-3/4", "5".
  [[nodiscard]] std::string text() const;

  friend ExactRational operator+(const ExactRational& a, const ExactRational& b);
  friend ExactRational operator*(const ExactRational& a, const ExactRational& b);
  /// Over 0 it does not fit.
  friend ExactRational operator/(const ExactRational& a, const ExactRational& b);

 private:
  Natural numerator_;
  Natural denominator_ = 1;
  bool negative_ = false;
};

}  // namespace weightcast
