#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/tasks/math/exact_number.h"

namespace weightcast {

/// A real number exactly, as answers to problems have it: a sum of terms c sqrt(n) pi^k with rational c, natural n and
/// whole k. Equal numbers have equal text(), as long as what stands under roots has no two prime factors above 9999;
/// different numbers never have. What cannot be written so, or is too large, does not fit: see Natural.
class MathValue {
 public:
  MathValue(ExactRational value = {});  // NOLINT(google-explicit-constructor): numbers mix with literals
  [[nodiscard]] static MathValue pi();
  [[nodiscard]] static MathValue unfit();

  [[nodiscard]] bool fits() const { return fits_; }
  /// The number of its terms: what an operation on it costs, times that of the other one.
  [[nodiscard]] std::size_t terms() const { return terms_.size(); }
  /// "0", "-3/4", "2*sqrt(3)", "1/2*pi", "1 + sqrt(2)": equal for equal numbers, and an expression itself.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] MathValue negated() const;
  friend MathValue operator+(const MathValue& a, const MathValue& b);
  friend MathValue operator*(const MathValue& a, const MathValue& b);
  /// Over 0, or over a sum of three terms and more, it does not fit.
  friend MathValue operator/(const MathValue& a, const MathValue& b);
  /// To a rational power. Roots but square ones fit where they are rational, and those of what is no rational number
  /// do not.
  [[nodiscard]] MathValue power(const MathValue& exponent) const;
  /// The `degree`-th root; as power().
  [[nodiscard]] MathValue root(std::uint64_t degree) const;

 private:
  struct Term {
    Natural radicand = 1;
    std::int64_t pi = 0;
    ExactRational coefficient;
  };

  [[nodiscard]] std::optional<ExactRational> rational() const;
  [[nodiscard]] MathValue whole_power(std::uint64_t exponent) const;
  void add(const Term& term);

  std::vector<Term> terms_;  // ascending by radicand and pi; none is 0
  bool fits_ = true;
};

}  // namespace weightcast
