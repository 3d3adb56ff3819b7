#include "tasks/math_answer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tasks/answer_text.h"
#include "tasks/math_string.h"

namespace weightcast {
namespace {

using std::string_view;
__extension__ using Int128 = __int128;  // of the products of two 64-bit numbers

// Where a number or a phrase is looked for: the end of a response, as the search is quadratic in the worst case.
constexpr std::size_t kSearchedBytesMax = 4096;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// numerator / denominator in lowest terms; absent beyond 64 bits or over zero.
std::optional<Rational> make_rational(Int128 numerator, Int128 denominator) {
  if (denominator == 0) return std::nullopt;
  Int128 a = numerator < 0 ? -numerator : numerator, b = denominator < 0 ? -denominator : denominator;
  while (b != 0) a = std::exchange(b, a % b);
  if (denominator < 0) a = -a;
  numerator /= a;
  denominator /= a;
  constexpr Int128 kMax = std::numeric_limits<std::int64_t>::max();
  if (numerator > kMax || numerator < -kMax || denominator > kMax) return std::nullopt;
  return Rational{static_cast<std::int64_t>(numerator), static_cast<std::int64_t>(denominator)};
}

/// Reads numbers from the front of a text. Each function leaves the text as it was if it finds nothing.
class NumberReader {
 public:
  explicit NumberReader(string_view text) : text_(text) {}

  [[nodiscard]] string_view rest() const { return text_; }

  void skip_space() {
    for (;;) {
      const string_view before = text_;
      while (!text_.empty() && is_space(text_.front())) text_.remove_prefix(1);
      for (const string_view spacing : {"\\!", "\\,", "\\ ", "~"}) skip(spacing);
      if (text_.size() == before.size()) return;
    }
  }

  bool skip(string_view what) {
    if (!text_.starts_with(what)) return false;
    text_.remove_prefix(what.size());
    return true;
  }

  /// Sign, currency, and a number, a fraction or a mixed number.
  std::optional<Rational> number() {
    const string_view before = text_;
    bool negative = false;
    for (bool found = true; found;) {
      found = skip("\\$") || skip("$") || skip("€") || skip("£");
      if (skip("-") || skip("−")) found = negative = true;
      if (!negative) found = skip("+") || found;
      skip_space();
    }
    auto value = fraction();
    if (!value && (value = decimal())) value = with_fraction(*value);
    if (!value) {
      text_ = before;
      return std::nullopt;
    }
    if (negative) value->numerator = -value->numerator;
    return value;
  }

 private:
  /// Digits with thousands separators, and decimals.
  std::optional<Rational> decimal() {
    const string_view before = text_;
    Int128 value = 0, scale = 1;
    std::size_t digits = 0, since_separator = 0;
    bool separated = false, fits = true;
    const auto take = [&] {
      value = value * 10 + (text_.front() - '0');
      fits = fits && value <= std::numeric_limits<std::int64_t>::max() && scale <= 1'000'000'000'000'000'000;
      if (!fits) value = 0;
      text_.remove_prefix(1);
      ++digits;
      ++since_separator;
    };
    while (!text_.empty()) {
      if (is_digit(text_.front())) {
        take();
      } else if (text_.front() == ',' && separator_follows(digits, separated, since_separator)) {
        text_.remove_prefix(1);
        separated = true;
        since_separator = 0;
      } else {
        break;
      }
    }
    if (text_.size() > 1 && text_[0] == '.' && is_digit(text_[1])) {
      text_.remove_prefix(1);
      while (!text_.empty() && is_digit(text_.front())) {
        if (fits) scale *= 10;
        take();
      }
    }
    if (digits == 0) text_ = before;
    return digits == 0 || !fits ? std::nullopt : make_rational(value, scale);
  }

  /// Whether the comma in front separates thousands: one to three digits before the first one, three after each.
  [[nodiscard]] bool separator_follows(std::size_t digits, bool separated, std::size_t since_separator) const {
    if (digits == 0 || since_separator > 3 || (separated && since_separator != 3)) return false;
    const string_view next = text_.substr(1, 4);
    return next.size() >= 3 && std::all_of(next.begin(), next.begin() + 3, is_digit) &&
           (next.size() == 3 || !is_digit(next[3]));
  }

  /// \frac{a}{b} or \frac12.
  std::optional<Rational> fraction() {
    const string_view before = text_;
    if (!skip("\\frac") && !skip("\\dfrac") && !skip("\\tfrac")) return std::nullopt;
    const auto above = argument();
    const auto below = above ? argument() : std::nullopt;
    const auto value = below ? quotient(*above, *below) : std::nullopt;
    if (!value) text_ = before;
    return value;
  }

  std::optional<Rational> argument() {
    if (!skip("{")) {
      if (text_.empty() || !is_digit(text_.front())) return std::nullopt;
      const Rational digit{text_.front() - '0', 1};
      text_.remove_prefix(1);
      return digit;
    }
    skip_space();
    const bool negative = skip("-");
    auto value = decimal();
    skip_space();
    if (!value || !skip("}")) return std::nullopt;
    if (negative) value->numerator = -value->numerator;
    return value;
  }

  /// "3/4" of "3", "2 1/2" and "2\frac{1}{2}" of "2"; otherwise `whole`.
  std::optional<Rational> with_fraction(Rational whole) {
    const string_view before = text_;
    skip_space();
    if (skip("/")) {
      skip_space();
      if (const auto below = decimal()) return quotient(whole, *below);
      text_ = before;
      return whole;
    }
    std::optional<Rational> part = fraction();
    if (!part && text_.size() < before.size()) {
      const auto above = decimal();
      skip_space();
      const bool slash = above && skip("/");
      skip_space();
      const auto below = slash ? decimal() : std::nullopt;
      if (below) part = quotient(*above, *below);
    }
    if (!part || whole.denominator != 1) {
      text_ = before;
      return whole;
    }
    return make_rational(static_cast<Int128>(whole.numerator) * part->denominator + part->numerator, part->denominator);
  }

  static std::optional<Rational> quotient(Rational a, Rational b) {
    return make_rational(static_cast<Int128>(a.numerator) * b.denominator,
                         static_cast<Int128>(a.denominator) * b.numerator);
  }

  string_view text_;
};

/// The letters of what follows a number, or nothing if that is no unit.
std::optional<std::string> read_unit(string_view text) {
  std::string unit;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_ascii_letter(c)) {
      unit += c;
    } else if (c == '\\') {
      // A command that sets type (\text, \mathrm) is none of the unit; another one (\pi) makes it no unit.
      std::size_t end = i + 1;
      while (end < text.size() && is_ascii_letter(text[end])) ++end;
      const string_view command = text.substr(i + 1, end - i - 1);
      if (command == "circ") unit += "degrees";
      if (!command.empty() && command != "text" && command != "mathrm" && command != "mbox" && command != "circ" &&
          command != "textbf") {
        return std::nullopt;
      }
      i = end - 1;
    } else if (static_cast<unsigned char>(c) < 0x80 && !is_space(c) &&
               string_view("%.{}^/$!,;:)*").find(c) == string_view::npos) {
      return std::nullopt;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      unit += c;
    }
  }
  return ascii_lower(unit);
}

/// What stands between `begin` and the end of its line.
string_view line_from(string_view text, std::size_t begin) {
  return trim(text.substr(begin, text.find('\n', begin) - begin));
}

/// The first number in `text`, as it is written there.
std::optional<std::string> first_number(string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    NumberReader reader(text.substr(i));
    if (reader.number()) return std::string(text.substr(i, text.size() - i - reader.rest().size()));
  }
  return std::nullopt;
}

std::optional<std::string> last_number(string_view text) {
  std::optional<std::string> last;
  for (std::size_t i = 0; i < text.size();) {
    // "16-3" has no number -3: a sign after a digit is a minus between two.
    const bool between = text[i] == '-' && i > 0 && (is_digit(text[i - 1]) || text[i - 1] == ')');
    NumberReader reader(text.substr(i));
    if (!between && reader.number()) {
      const std::size_t end = text.size() - reader.rest().size();
      last = std::string(text.substr(i, end - i));
      i = end;
    } else {
      ++i;
    }
  }
  return last;
}

std::optional<std::string> extract_auto(string_view response) {
  if (auto boxed = extract_boxed(response)) return boxed;
  response.remove_prefix(response.size() - std::min(response.size(), kSearchedBytesMax));
  constexpr string_view kMark = "####";
  std::optional<std::size_t> begin;
  if (const std::size_t mark = response.rfind(kMark); mark != string_view::npos) begin = mark + kMark.size();
  if (!begin) {
    const std::string words = ascii_lower(response);
    for (const string_view phrase : {"answer is", "answer:"}) {
      const std::size_t found = words.rfind(phrase);
      if (found != string_view::npos) begin = std::max(begin.value_or(0), found + phrase.size());
    }
  }
  if (!begin) return last_number(response);
  const string_view line = line_from(response, *begin);
  if (parse_math_number(line)) return std::string(line);
  if (auto number = first_number(line)) return number;
  if (line.empty()) return std::nullopt;
  return std::string(line);
}

}  // namespace

std::optional<Rational> parse_math_number(string_view text, std::string* unit) {
  NumberReader reader(trim(text));
  const bool wrapped = reader.skip("\\(") || reader.skip("\\[");
  reader.skip_space();
  const auto value = reader.number();
  if (!value) return std::nullopt;
  reader.skip_space();
  string_view rest = reader.rest();
  if (wrapped && (rest.ends_with("\\)") || rest.ends_with("\\]"))) rest.remove_suffix(2);
  auto found = read_unit(rest);
  if (!found) return std::nullopt;
  if (unit != nullptr) *unit = std::move(*found);
  return value;
}

bool answers_equal(string_view a, string_view b) {
  std::string unit_a, unit_b;
  const auto left = parse_math_number(a, &unit_a), right = parse_math_number(b, &unit_b);
  if (left && right) return *left == *right && (unit_a.empty() || unit_b.empty() || unit_a == unit_b);
  return math_strings_equal(a, b);
}

std::optional<std::string> extract_answer(string_view response, AnswerMethod method) {
  switch (method) {
    case AnswerMethod::kAuto: return extract_auto(response);
    case AnswerMethod::kStrict: return extract_strict(response);
    case AnswerMethod::kFlexible: return extract_flexible(response);
    case AnswerMethod::kBoxed: return extract_boxed(response);
  }
  return std::nullopt;
}

bool is_correct_answer(string_view response, string_view truth, AnswerMethod method) {
  const auto answer = extract_answer(response, method);
  if (!answer) return false;
  switch (method) {
    case AnswerMethod::kAuto: return answers_equal(*answer, truth);
    case AnswerMethod::kBoxed: return math_strings_equal(*answer, truth);
    default: return *answer == truth;
  }
}

}  // namespace weightcast
