#include "trainer/tasks/math/exact_number.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trainer/tasks/math/math_answer.h"
#include "trainer/tasks/math/math_value.h"

namespace weightcast {
namespace {

__extension__ using Wide = unsigned __int128;

std::string decimal(Wide value) {
  std::string digits;
  for (; value > 0 || digits.empty(); value /= 10) digits.insert(digits.begin(), static_cast<char>('0' + value % 10));
  return digits;
}

/// 2 to the `exponent`.
Natural two_to(unsigned exponent) {
  Natural value = 1;
  for (unsigned i = 0; i < exponent; ++i) value = value * 2;
  return value;
}

/// Numbers of every length, up to `bits_max` bits.
Natural any_natural(std::size_t bits_max) {
  const auto limbs = *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::arbitrary<std::uint32_t>());
  Natural value;
  for (std::size_t i = 0; i < limbs.size() && value.bits() + 33 <= bits_max; ++i) {
    value = value * (std::uint64_t{1} << 32) + limbs[i];
  }
  return value;
}

RC_GTEST_PROP(Natural, IsAsTheMachinesNumbers, (std::uint64_t a, std::uint64_t b)) {
  const Natural left = a, right = b;
  RC_ASSERT((left + right).text() == decimal(Wide{a} + b));
  RC_ASSERT((left * right).text() == decimal(Wide{a} * b));
  RC_ASSERT((left < right) == (a < b));
  RC_ASSERT((a < b ? right - left : left - right).text() == decimal(a < b ? b - a : a - b));
  if (b == 0) return;
  const auto [quotient, remainder] = left.divided_by(right);
  RC_ASSERT(quotient.small() == a / b);
  RC_ASSERT(remainder.small() == a % b);
  const auto divisor = static_cast<std::uint32_t>(b | 1);
  RC_ASSERT(left.remainder(divisor) == a % divisor);
}

RC_GTEST_PROP(Natural, DividesWhatItHasMultiplied, ()) {
  const Natural a = any_natural(500), b = any_natural(400) + 1, rest = any_natural(1000).divided_by(b).remainder;
  const Natural::Division division = (a * b + rest).divided_by(b);
  RC_ASSERT(division.quotient == a);
  RC_ASSERT(division.remainder == rest);
  RC_ASSERT((a + b) * (a + b) == a * a + a * b * 2 + b * b);
  const Natural common = gcd(a * b, b);
  RC_ASSERT(common == b);
}

RC_GTEST_PROP(Natural, RootsAreTheLargestThatFit, ()) {
  const Natural number = any_natural(1000);
  const unsigned degree = *rc::gen::inRange(2u, 9u);
  const auto power = [&](const Natural& of) {
    Natural result = 1;
    for (unsigned i = 0; i < degree; ++i) result = result * of;
    return result;
  };
  const Natural root = number.root(degree);
  RC_ASSERT(power(root) <= number);
  RC_ASSERT(power(root + 1) > number);
}

TEST(Natural, SaysWhatDoesNotFit) {
  const Natural half = two_to(1023);
  EXPECT_TRUE(half.fits());
  EXPECT_EQ(half.bits(), 1024u);
  const Natural largest = half + (half - 1);
  EXPECT_TRUE(largest.fits());
  EXPECT_FALSE((largest + 1).fits());
  EXPECT_FALSE((half * 2).fits());
  EXPECT_FALSE((largest * largest).fits());
  EXPECT_TRUE((two_to(512) * two_to(511)).fits());
  EXPECT_FALSE((two_to(512) * two_to(512)).fits());
  EXPECT_FALSE(((half * 2) - 1).fits()) << "nor what is computed from it";
  EXPECT_EQ(largest.divided_by(largest).quotient, Natural(1));
  EXPECT_EQ(largest.divided_by(1).quotient, largest);
  EXPECT_EQ(largest.text().size(), 309u);
}

RC_GTEST_PROP(MathValue, KeepsTheLawsOfArithmetic, ()) {
  const auto any = [] {
    const auto part = [] {
      const auto above = *rc::gen::inRange<std::uint64_t>(0, 100), below = *rc::gen::inRange<std::uint64_t>(1, 20);
      return MathValue(ExactRational(*rc::gen::arbitrary<bool>(), above, below));
    };
    const auto radicand = *rc::gen::inRange<std::uint64_t>(0, 60);
    return part() + part() * MathValue(radicand).root(2) + part() * MathValue::pi();
  };
  const MathValue a = any(), b = any(), c = any();
  RC_ASSERT((a + b).text() == (b + a).text());
  RC_ASSERT((a * b).text() == (b * a).text());
  RC_ASSERT((a + b + a.negated()).text() == b.text());
  const MathValue left = a * (b + c), right = a * b + a * c;
  if (left.fits() && right.fits()) RC_ASSERT(left.text() == right.text());
  const MathValue quotient = a * b / b;
  if (quotient.fits()) RC_ASSERT(quotient.text() == a.text());
}

RC_GTEST_PROP(MathValue, TakesSquaresFromUnderRoots, ()) {
  const auto outside = *rc::gen::inRange<std::uint64_t>(0, 9999);
  const auto inside = *rc::gen::inRange<std::uint64_t>(0, 1'000'000);
  const MathValue whole = MathValue(ExactRational(false, Natural(outside) * outside * inside, 1)).root(2);
  RC_ASSERT(whole.text() == (MathValue(outside) * MathValue(inside).root(2)).text());
  RC_ASSERT((whole * whole).text() == (Natural(outside) * outside * inside).text());
}

TEST(MathValue, FindsTheSquareOfALargePrimeUnderARoot) {
  const Natural prime = 1'000'003;
  EXPECT_EQ(MathValue(ExactRational(false, prime * prime * 12, 1)).root(2).text(), "2000006*sqrt(3)");
}

RC_GTEST_PROP(MathAnswer, ReadsItsOwnValues, ()) {
  const auto number = [] { return std::to_string(*rc::gen::inRange(1, 1000)); };
  const std::string text = number() + "/" + number() + "\\sqrt{" + number() + "} - " + number() + "\\pi^" +
                           std::to_string(*rc::gen::inRange(1, 9)) + " + \\frac{" + number() + "}{" + number() + "}";
  const auto value = parse_math_number(text);
  RC_ASSERT(value.has_value());
  RC_ASSERT(parse_math_number(value->value) == value);
  RC_ASSERT(answers_equal(text, value->value));
  RC_ASSERT(!answers_equal(text, value->value + " + 1/1000000000000000000000000"));
}

RC_GTEST_PROP(MathAnswer, SetsAreEqualInEveryOrder, ()) {
  auto numbers = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(-999, 999)));
  if (numbers.size() > 50) numbers.resize(50);
  const auto set_of = [](const std::vector<int>& list) {
    std::string text = "\\{";
    for (const int one : list) text += (text.size() > 2 ? ", " : "") + std::to_string(one);
    return text + "\\}";
  };
  const std::string first = set_of(numbers);
  std::sort(numbers.begin(), numbers.end());
  RC_ASSERT(answers_equal(first, set_of(numbers)));
  numbers.push_back(1000);
  RC_ASSERT(!answers_equal(first, set_of(numbers)));
}

}  // namespace
}  // namespace weightcast
