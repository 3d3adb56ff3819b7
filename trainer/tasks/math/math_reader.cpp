#include "trainer/tasks/math/math_reader.h"

#include <algorithm>
#include <utility>

#include "trainer/tasks/answer_text.h"

namespace weightcast {
namespace {

using std::string_view;

constexpr string_view kRootSign = "√", kPiSign = "π";

}  // namespace

void MathReader::skip_space() {
  for (;;) {
    const string_view before = text_;
    while (!text_.empty() && is_space(text_.front())) text_.remove_prefix(1);
    for (const string_view spacing : {"\\!", "\\,", "\\;", "\\:", "\\ ", "~"}) skip(spacing);
    if (text_.size() == before.size()) return;
  }
}

bool MathReader::skip(string_view what) {
  if (!text_.starts_with(what)) return false;
  text_.remove_prefix(what.size());
  return true;
}

bool MathReader::skip_word(string_view word) {
  if (!text_.starts_with(word) || (text_.size() > word.size() && is_ascii_letter(text_[word.size()]))) return false;
  text_.remove_prefix(word.size());
  return true;
}

bool MathReader::spend(std::size_t operations) {
  if (operations > operations_) operations_ = 0;
  operations_ -= std::min(operations_, operations);
  return operations_ > 0;
}

MathValue MathReader::product(const MathValue& a, const MathValue& b) {
  return spend(a.terms() * b.terms() + 1) ? a * b : MathValue::unfit();
}

MathValue MathReader::quotient(const MathValue& a, const MathValue& b) {
  return spend(2 * a.terms() * b.terms() + 4) ? a / b : MathValue::unfit();
}

std::optional<MathValue> MathReader::expression() {
  std::optional<MathValue> sum = term();
  while (sum) {
    const string_view before = text_;
    skip_space();
    const bool minus = skip("-") || skip("−");
    if (!minus && !skip("+")) {
      text_ = before;
      break;
    }
    skip_space();
    const std::optional<MathValue> next = term();
    if (!next) {
      text_ = before;
      break;
    }
    sum = spend(sum->terms() + next->terms() + 1) ? *sum + (minus ? next->negated() : *next) : MathValue::unfit();
  }
  return sum;
}

std::optional<MathValue> MathReader::term() {
  const string_view before = text_;
  bool has_sign = false, negative = false;
  for (bool found = true; found;) {
    found = skip("\\$") || skip("$") || skip("€") || skip("£");
    if (!has_sign) {
      negative = skip("-") || skip("−");
      has_sign = negative || skip("+");
      found = found || has_sign;
    }
    skip_space();
  }
  bool is_whole = false;
  std::optional<MathValue> value = factor(is_whole);
  if (!value) {
    text_ = before;
    return std::nullopt;
  }
  if (is_whole) {
    if (const auto part = part_of_mixed()) {
      value = spend(2) ? *value + *part : MathValue::unfit();
    } else if (begins_fraction()) {
      // It is none. Trying again as a factor would double the work at each level.
      return negative ? value->negated() : value;
    }
  }
  for (;;) {
    const string_view behind = text_;
    skip_space();
    const bool divides = skip("/") || skip("÷") || skip_word("\\div");
    const bool multiplies = !divides && ((!text_.starts_with("**") && skip("*")) || skip_word("\\cdot") ||
                                         skip_word("\\times") || skip("×") || skip("·"));
    if (divides || multiplies) skip_space();
    const bool is_next = divides || multiplies || begins_implicit_factor(text_.size() == behind.size());
    const std::optional<MathValue> next = is_next ? factor(is_whole) : std::nullopt;
    if (!next) {
      text_ = behind;
      break;
    }
    value = divides ? quotient(*value, *next) : product(*value, *next);
  }
  return negative ? value->negated() : value;
}

bool MathReader::begins_fraction() const {
  MathReader ahead = *this;
  ahead.skip_space();
  return ahead.skip("\\frac") || ahead.skip("\\dfrac") || ahead.skip("\\tfrac");
}

/// "3(4)" is a product, and "3 (4)" may be a number with a remark.
bool MathReader::begins_implicit_factor(bool is_close) const {
  if (begins_fraction()) return true;
  MathReader ahead = *this;
  if (ahead.skip("\\sqrt") || ahead.skip_word("sqrt") || ahead.skip(kRootSign)) return true;
  if (ahead.skip_word("\\pi") || ahead.skip_word("pi") || ahead.skip(kPiSign)) return true;
  return is_close && ahead.skip("(");
}

std::optional<MathValue> MathReader::factor(bool& is_whole) {
  std::optional<MathValue> value = base(is_whole);
  if (!value) return std::nullopt;
  if (const auto power = exponent()) {
    is_whole = false;
    value = spend(value->terms() > 1 ? 100 : 20) ? value->power(*power) : MathValue::unfit();
  }
  return value;
}

std::optional<MathValue> MathReader::exponent() {
  const string_view before = text_;
  skip_space();
  if (!skip("^") && !skip("**")) {
    text_ = before;
    return std::nullopt;
  }
  skip_space();
  std::optional<MathValue> value = group("{", "}");
  if (!value) value = group("(", ")");
  if (!value) {
    const bool negative = skip("-");
    if (const auto digits = decimal()) value = negative ? digits->value.negated() : digits->value;
  }
  if (!value) text_ = before;  // degrees, or the power of a unit
  return value;
}

std::optional<MathValue> MathReader::base(bool& is_whole) {
  is_whole = false;
  if (steps_ == 0 || depth_ == kDepthMax) return std::nullopt;
  --steps_;
  if (skip_word("\\pi") || skip_word("pi") || skip(kPiSign)) return MathValue::pi();
  if (auto value = fraction()) return value;
  if (auto value = root()) return value;
  if (auto value = group("(", ")")) return value;
  auto literal = decimal();
  if (!literal) return std::nullopt;
  is_whole = literal->is_whole;
  return std::move(literal->value);
}

/// Digits with thousands separators, and decimals.
std::optional<MathReader::Literal> MathReader::decimal() {
  const string_view before = text_;
  Natural value, scale = 1;
  std::size_t digits = 0, since_separator = 0;
  bool separated = false, is_whole = true;
  const bool computes = spend(1);
  const auto take = [&] {
    if (computes && value.fits()) value = value * 10 + static_cast<std::uint64_t>(text_.front() - '0');
    text_.remove_prefix(1);
    ++digits;
    ++since_separator;
  };
  while (!text_.empty()) {
    if (is_digit(text_.front())) {
      take();
      continue;
    }
    // One to three digits before the first separator, three after each.
    const bool may_follow = digits > 0 && since_separator <= 3 && (!separated || since_separator == 3);
    const std::size_t separator = may_follow ? separator_bytes() : 0;
    if (separator == 0) break;
    text_.remove_prefix(separator);
    separated = true;
    since_separator = 0;
  }
  if (text_.size() > 1 && text_[0] == '.' && is_digit(text_[1])) {
    is_whole = false;
    text_.remove_prefix(1);
    while (!text_.empty() && is_digit(text_.front())) {
      if (computes && scale.fits()) scale = scale * 10;
      take();
    }
  }
  if (digits == 0) {
    text_ = before;
    return std::nullopt;
  }
  return Literal{computes ? MathValue(ExactRational(false, value, scale)) : MathValue::unfit(), is_whole};
}

std::size_t MathReader::separator_bytes() const {
  if (commas_ == Commas::kSeparateElements) return 0;
  for (const string_view mark : {",\\!", "{,}", "\\,", ","}) {
    if (!text_.starts_with(mark)) continue;
    const string_view next = text_.substr(mark.size(), 4);
    const bool is_thousand = next.size() >= 3 && std::all_of(next.begin(), next.begin() + 3, is_digit) &&
                             (next.size() == 3 || !is_digit(next[3]));
    if (is_thousand) return mark.size();
  }
  return 0;
}

/// \frac{a}{b} or \frac12.
std::optional<MathValue> MathReader::fraction() {
  const string_view before = text_;
  if (!skip("\\frac") && !skip("\\dfrac") && !skip("\\tfrac")) return std::nullopt;
  const auto above = argument();
  const auto below = above ? argument() : std::nullopt;
  if (below) return quotient(*above, *below);
  text_ = before;
  return std::nullopt;
}

std::optional<MathValue> MathReader::root() {
  const string_view before = text_;
  std::optional<MathValue> value, degree;
  if (skip("\\sqrt")) {
    degree = group("[", "]");
    value = argument();
  } else if (skip_word("sqrt") || skip(kRootSign)) {
    skip_space();
    value = group("(", ")");
    if (!value) value = group("{", "}");
    if (const auto digits = value ? std::nullopt : decimal()) value = digits->value;
  }
  if (!value) {
    text_ = before;
    return std::nullopt;
  }
  const MathValue power = degree ? quotient(MathValue(1), *degree) : MathValue(ExactRational(false, 1, 2));
  return spend(20) ? value->power(power) : MathValue::unfit();
}

std::optional<MathValue> MathReader::group(string_view open, string_view close) {
  const string_view before = text_;
  if (!skip(open)) return std::nullopt;
  // (1,234) is a point; what stands in braces belongs to a command.
  const Commas outside = commas_;
  if (open == "(") commas_ = Commas::kSeparateElements;
  ++depth_;
  skip_space();
  std::optional<MathValue> value = expression();
  skip_space();
  --depth_;
  commas_ = outside;
  if (value && skip(close)) return value;
  text_ = before;
  return std::nullopt;
}

std::optional<MathValue> MathReader::argument() {
  const string_view before = text_;
  skip_space();
  if (auto value = group("{", "}")) return value;
  if (skip_word("\\pi")) return MathValue::pi();
  if (text_.empty() || !is_digit(text_.front())) {
    text_ = before;
    return std::nullopt;
  }
  const auto digit = static_cast<std::uint64_t>(text_.front() - '0');
  text_.remove_prefix(1);
  return MathValue(digit);
}

std::optional<MathValue> MathReader::part_of_mixed() {
  const string_view before = text_;
  skip_space();
  if (text_.starts_with("\\") && steps_ > 0) {
    --steps_;
    if (auto value = fraction()) return value;
  } else if (text_.size() < before.size()) {
    const auto above = decimal();
    skip_space();
    const bool slash = above && skip("/");
    skip_space();
    const auto below = slash ? decimal() : std::nullopt;
    if (below && above->is_whole && below->is_whole) return quotient(above->value, below->value);
  }
  text_ = before;
  return std::nullopt;
}

}  // namespace weightcast
