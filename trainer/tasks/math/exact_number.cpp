#include "trainer/tasks/math/exact_number.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/result.h"

namespace weightcast {
namespace {

constexpr std::uint32_t kBillion = 1'000'000'000;  // the largest power of ten in 32 bits
constexpr std::size_t kBillionDigits = 9;

}  // namespace

// ---- Natural

Natural::Natural(std::uint64_t value) {
  limbs_[0] = static_cast<std::uint32_t>(value);
  limbs_[1] = static_cast<std::uint32_t>(value >> 32);
  size_ = 2;
  trim();
}

Natural Natural::unfit() {
  Natural result;
  result.fits_ = false;
  return result;
}

void Natural::trim() {
  while (size_ > 0 && limbs_[size_ - 1] == 0) --size_;
}

std::size_t Natural::bits() const {
  return size_ == 0 ? 0 : 32 * size_ - static_cast<std::size_t>(std::countl_zero(limbs_[size_ - 1]));
}

std::optional<std::uint64_t> Natural::small() const {
  if (!fits_ || size_ > 2) return std::nullopt;
  return limbs_[0] | static_cast<std::uint64_t>(limbs_[1]) << 32;
}

std::string Natural::text() const {
  if (is_zero()) return "0";
  Natural left = *this;
  std::string reversed;
  while (!left.is_zero()) {
    std::uint64_t carry = 0;
    for (std::size_t i = left.size_; i-- > 0;) {
      carry = carry << 32 | left.limbs_[i];
      left.limbs_[i] = static_cast<std::uint32_t>(carry / kBillion);
      carry %= kBillion;
    }
    left.trim();
    for (std::size_t digit = 0; digit < kBillionDigits; ++digit, carry /= 10) {
      reversed += static_cast<char>('0' + carry % 10);
    }
  }
  while (reversed.back() == '0') reversed.pop_back();
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

std::strong_ordering operator<=>(const Natural& a, const Natural& b) {
  if (a.size_ != b.size_) return a.size_ <=> b.size_;
  for (std::size_t i = a.size_; i-- > 0;) {
    if (a.limbs_[i] != b.limbs_[i]) return a.limbs_[i] <=> b.limbs_[i];
  }
  return std::strong_ordering::equal;
}

Natural operator+(const Natural& a, const Natural& b) {
  if (!a.fits_ || !b.fits_) return Natural::unfit();
  Natural sum;
  std::uint64_t carry = 0;
  const std::size_t size = std::max(a.size_, b.size_);
  for (std::size_t i = 0; i < size; ++i) {
    carry += static_cast<std::uint64_t>(a.limbs_[i]) + b.limbs_[i];
    sum.limbs_[i] = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
  sum.size_ = size;
  if (carry == 0) return sum;
  if (size == Natural::kLimbs) return Natural::unfit();
  sum.limbs_[sum.size_++] = static_cast<std::uint32_t>(carry);
  return sum;
}

Natural operator-(const Natural& a, const Natural& b) {
  if (!a.fits_ || !b.fits_) return Natural::unfit();
  WC_CHECK(a >= b);
  Natural difference;
  std::int64_t borrow = 0;
  for (std::size_t i = 0; i < a.size_; ++i) {
    borrow += static_cast<std::int64_t>(a.limbs_[i]) - b.limbs_[i];
    difference.limbs_[i] = static_cast<std::uint32_t>(borrow);
    borrow = borrow < 0 ? -1 : 0;
  }
  difference.size_ = a.size_;
  difference.trim();
  return difference;
}

Natural operator*(const Natural& a, const Natural& b) {
  // A product has as many bits as its factors together, or one fewer.
  if (!a.fits_ || !b.fits_ || a.bits() + b.bits() > Natural::kBitsMax + 1) return Natural::unfit();
  std::array<std::uint32_t, 2 * Natural::kLimbs> limbs{};
  for (std::size_t i = 0; i < a.size_; ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.size_; ++j) {
      carry += limbs[i + j] + static_cast<std::uint64_t>(a.limbs_[i]) * b.limbs_[j];
      limbs[i + j] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    limbs[i + b.size_] = static_cast<std::uint32_t>(carry);
  }
  if (limbs[Natural::kLimbs] != 0) return Natural::unfit();
  Natural product;
  std::copy_n(limbs.begin(), Natural::kLimbs, product.limbs_.begin());
  product.size_ = std::min(a.size_ + b.size_, Natural::kLimbs);
  product.trim();
  return product;
}

Natural Natural::shifted_left(std::size_t bits) const {
  const std::size_t whole = bits / 32, part = bits % 32;
  Natural result;
  for (std::size_t i = size_; i-- > 0;) {
    const std::uint64_t shifted = static_cast<std::uint64_t>(limbs_[i]) << part;
    if (i + whole + 1 < kLimbs) result.limbs_[i + whole + 1] |= static_cast<std::uint32_t>(shifted >> 32);
    result.limbs_[i + whole] = static_cast<std::uint32_t>(shifted);
  }
  result.size_ = std::min(size_ + whole + 1, kLimbs);
  result.trim();
  return result;
}

void Natural::set_bit(std::size_t bit) {
  limbs_[bit / 32] |= std::uint32_t{1} << bit % 32;
  size_ = std::max(size_, bit / 32 + 1);
}

Natural::Division Natural::divided_by(const Natural& divisor) const {
  if (!fits_ || !divisor.fits_) return {unfit(), unfit()};
  WC_CHECK(!divisor.is_zero());
  Division result{0, *this};
  if (*this < divisor) return result;
  // No part is longer than this number, so that each fits.
  for (std::size_t shift = bits() - divisor.bits() + 1; shift-- > 0;) {
    const Natural part = divisor.shifted_left(shift);
    if (part > result.remainder) continue;
    result.remainder = result.remainder - part;
    result.quotient.set_bit(shift);
  }
  return result;
}

std::uint32_t Natural::remainder(std::uint32_t divisor) const {
  std::uint64_t carry = 0;
  for (std::size_t i = size_; i-- > 0;) carry = (carry << 32 | limbs_[i]) % divisor;
  return static_cast<std::uint32_t>(carry);
}

Natural Natural::root(unsigned degree) const {
  if (!fits_) return unfit();
  const auto is_above = [&](const Natural& candidate) {
    Natural power = 1;
    for (unsigned i = 0; i < degree; ++i) {
      power = power * candidate;
      if (!power.fits() || power > *this) return true;
    }
    return false;
  };
  Natural result;
  for (std::size_t bit = bits() / degree + 1; bit-- > 0;) {
    Natural candidate = result;
    candidate.set_bit(bit);
    if (!is_above(candidate)) result = candidate;
  }
  return result;
}

Natural gcd(Natural a, Natural b) {
  if (!a.fits() || !b.fits()) return Natural::unfit();
  while (!b.is_zero()) {
    Natural next = a.divided_by(b).remainder;
    a = std::exchange(b, next);
  }
  return a;
}

// ---- ExactRational

ExactRational::ExactRational(bool negative, Natural numerator, Natural denominator) {
  if (!numerator.fits() || !denominator.fits() || denominator.is_zero()) {
    numerator_ = Natural::unfit();
    return;
  }
  const Natural common = gcd(numerator, denominator);
  numerator_ = numerator.divided_by(common).quotient;
  denominator_ = denominator.divided_by(common).quotient;
  negative_ = negative && !numerator_.is_zero();
}

ExactRational ExactRational::negated() const {
  ExactRational result = *this;
  result.negative_ = !negative_ && !is_zero();
  return result;
}

std::string ExactRational::text() const {
  std::string text = (negative_ ? "-" : "") + numerator_.text();
  return denominator_ == Natural(1) ? text : text + "/" + denominator_.text();
}

ExactRational operator+(const ExactRational& a, const ExactRational& b) {
  const Natural left = a.numerator_ * b.denominator_, right = b.numerator_ * a.denominator_;
  const Natural denominator = a.denominator_ * b.denominator_;
  if (!left.fits() || !right.fits()) return {false, Natural::unfit(), 1};
  if (a.negative_ == b.negative_) return {a.negative_, left + right, denominator};
  return left >= right ? ExactRational(a.negative_, left - right, denominator)
                       : ExactRational(b.negative_, right - left, denominator);
}

ExactRational operator*(const ExactRational& a, const ExactRational& b) {
  return {a.negative_ != b.negative_, a.numerator_ * b.numerator_, a.denominator_ * b.denominator_};
}

ExactRational operator/(const ExactRational& a, const ExactRational& b) {
  return {a.negative_ != b.negative_, a.numerator_ * b.denominator_, a.denominator_ * b.numerator_};
}

}  // namespace weightcast
