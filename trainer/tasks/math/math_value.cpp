#include "trainer/tasks/math/math_value.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace weightcast {
namespace {

constexpr std::size_t kTermsMax = 8;
constexpr std::int64_t kPiPowerMax = 64;
constexpr std::uint64_t kExponentMax = 4096;  // 2 to a larger power does not fit
constexpr unsigned kRootMax = 64;
// Prime factors up to it are found under a root. It makes roots of numbers below 10^12 unique.
constexpr std::uint32_t kFactorMax = 9999;

/// number == outside^2 * inside, and no square divides `inside`, as far as kFactorMax goes.
struct SquareFactors {
  Natural outside = 1, inside = 1;
};

SquareFactors square_factors(Natural number) {
  SquareFactors factors;
  for (std::uint32_t factor = 2; factor <= kFactorMax && number > Natural(1); factor += factor == 2 ? 1 : 2) {
    for (bool odd = false; number.remainder(factor) == 0; odd = !odd) {
      number = number.divided_by(factor).quotient;
      // The second of each two factors takes the first one outside.
      if (odd) factors.inside = factors.inside.divided_by(factor).quotient;
      (odd ? factors.outside : factors.inside) = (odd ? factors.outside : factors.inside) * factor;
    }
  }
  const Natural root = number.root(2);
  if (root * root == number) {
    factors.outside = factors.outside * root;
  } else {
    factors.inside = factors.inside * number;
  }
  return factors;
}

/// Absent unless it is a whole number.
std::optional<Natural> exact_root(const Natural& number, unsigned degree) {
  const Natural root = number.root(degree);
  Natural power = 1;
  for (unsigned i = 0; i < degree; ++i) power = power * root;
  return power.fits() && power == number ? std::optional(root) : std::nullopt;
}

}  // namespace

MathValue::MathValue(ExactRational value) : fits_(value.fits()) { add({1, 0, value}); }

MathValue MathValue::pi() {
  MathValue value;
  value.add({1, 1, 1});
  return value;
}

MathValue MathValue::unfit() {
  MathValue value;
  value.fits_ = false;
  return value;
}

void MathValue::add(const Term& term) {
  if (!term.coefficient.fits() || !term.radicand.fits() || std::abs(term.pi) > kPiPowerMax) fits_ = false;
  if (!fits_ || term.coefficient.is_zero()) return;
  const auto key = [](const Term& one) { return std::tie(one.radicand, one.pi); };
  const auto at = std::find_if(terms_.begin(), terms_.end(), [&](const Term& one) { return key(one) >= key(term); });
  if (at == terms_.end() || key(*at) != key(term)) {
    terms_.insert(at, term);
    fits_ = terms_.size() <= kTermsMax;
    return;
  }
  at->coefficient = at->coefficient + term.coefficient;
  fits_ = at->coefficient.fits();
  if (at->coefficient.is_zero()) terms_.erase(at);
}

std::string MathValue::text() const {
  if (terms_.empty()) return "0";
  std::string text;
  for (const Term& term : terms_) {
    if (!text.empty()) text += " + ";
    std::string factors;
    if (term.radicand != Natural(1)) factors += "*sqrt(" + term.radicand.text() + ")";
    if (term.pi != 0) factors += "*pi";
    if (term.pi != 0 && term.pi != 1) factors += "^" + std::to_string(term.pi);
    const std::string coefficient = term.coefficient.text();
    if (coefficient == "1" && !factors.empty()) {
      text += factors.substr(1);
    } else {
      text += coefficient + factors;
    }
  }
  return text;
}

MathValue MathValue::negated() const {
  MathValue result = *this;
  for (Term& term : result.terms_) term.coefficient = term.coefficient.negated();
  return result;
}

MathValue operator+(const MathValue& a, const MathValue& b) {
  if (!a.fits_ || !b.fits_) return MathValue::unfit();
  MathValue sum = a;
  for (const MathValue::Term& term : b.terms_) sum.add(term);
  return sum;
}

MathValue operator*(const MathValue& a, const MathValue& b) {
  if (!a.fits_ || !b.fits_) return MathValue::unfit();
  MathValue product;
  for (const MathValue::Term& left : a.terms_) {
    for (const MathValue::Term& right : b.terms_) {
      // sqrt(g p) sqrt(g q) is g sqrt(p q), and p q has no square where g p and g q have none.
      const Natural common = gcd(left.radicand, right.radicand);
      product.add({left.radicand.divided_by(common).quotient * right.radicand.divided_by(common).quotient,
                   left.pi + right.pi, left.coefficient * right.coefficient * ExactRational(false, common, 1)});
    }
  }
  return product;
}

MathValue operator/(const MathValue& a, const MathValue& b) {
  if (!a.fits_ || !b.fits_ || b.terms_.empty() || b.terms_.size() > 2) return MathValue::unfit();
  if (b.terms_.size() == 2) {
    // (p + q)(p - q) has no root any more.
    MathValue conjugate = b;
    conjugate.terms_[1].coefficient = conjugate.terms_[1].coefficient.negated();
    const MathValue below = b * conjugate;
    return below.terms_.size() == 1 ? a * conjugate / below : MathValue::unfit();
  }
  const MathValue::Term& below = b.terms_.front();
  MathValue inverse;
  inverse.add(
      {below.radicand, -below.pi, ExactRational(1) / (below.coefficient * ExactRational(false, below.radicand, 1))});
  return a * inverse;
}

std::optional<ExactRational> MathValue::rational() const {
  if (!fits_ || terms_.size() > 1) return std::nullopt;
  if (terms_.empty()) return ExactRational();
  const Term& term = terms_.front();
  return term.radicand == Natural(1) && term.pi == 0 ? std::optional(term.coefficient) : std::nullopt;
}

MathValue MathValue::whole_power(std::uint64_t exponent) const {
  MathValue result = ExactRational(1), square = *this;
  for (;; exponent /= 2) {
    if (exponent % 2 == 1) result = result * square;
    if (exponent < 2 || !result.fits_) return result;
    square = square * square;
  }
}

MathValue MathValue::power(const MathValue& exponent) const {
  const auto wanted = exponent.rational();
  const auto above = wanted ? wanted->numerator().small() : std::nullopt;
  const auto degree = wanted ? wanted->denominator().small() : std::nullopt;
  if (!fits_ || !above || !degree || *above > kExponentMax) return unfit();
  if (terms_.empty() && *above == 0) return unfit();
  const MathValue base = *degree == 1 ? *this : root(*degree);
  const MathValue result = base.whole_power(*above);
  return wanted->is_negative() ? ExactRational(1) / result : result;
}

MathValue MathValue::root(std::uint64_t degree) const {
  const auto value = rational();
  if (!value || degree < 2 || degree > kRootMax || (value->is_negative() && degree % 2 == 0)) return unfit();
  const auto small_degree = static_cast<unsigned>(degree);
  if (degree == 2) {
    // The root of p / q is that of p q, over q.
    const SquareFactors factors = square_factors(value->numerator() * value->denominator());
    MathValue result;
    result.add({factors.inside, 0, ExactRational(false, factors.outside, value->denominator())});
    return result;
  }
  const auto above = exact_root(value->numerator(), small_degree);
  const auto below = exact_root(value->denominator(), small_degree);
  return above && below ? MathValue(ExactRational(value->is_negative(), *above, *below)) : unfit();
}

}  // namespace weightcast
