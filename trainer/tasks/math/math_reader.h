#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "trainer/tasks/math/math_value.h"

namespace weightcast {

/// Reads numbers and what is computed from them, as LaTeX or as plain text, from the front of a text:
///   18  1,234.50  $18  -3/4  \frac{3}{4}  2 1/2  10^{3}  2\sqrt{3}  sqrt(12)  \pi/2  (1 + \sqrt 5)/2
/// Each function leaves the text as it was if it finds nothing. A number that is too large is read to its end, never in
/// part, and does not fit. Its work is bounded by the text's length times kStepsMax.
class MathReader {
 public:
  enum class Commas { kSeparateThousands, kSeparateElements };
  enum class Values {
    kComputed,
    kSkipped,  ///< none fits: for the length of what is read alone
  };

  explicit MathReader(std::string_view text, Commas commas = Commas::kSeparateThousands,
                      Values values = Values::kComputed)
      : text_(text), commas_(commas), operations_(values == Values::kComputed ? kOperationsMax : 0) {}

  [[nodiscard]] std::string_view rest() const { return text_; }
  void skip_space();
  bool skip(std::string_view what);
  /// The same of a word, which no letter follows.
  bool skip_word(std::string_view word);

  /// A sum of terms.
  std::optional<MathValue> expression();
  /// Sign, currency, and a product of numbers, fractions, powers and roots.
  std::optional<MathValue> term();

 private:
  static constexpr unsigned kOperationsMax = 500;  ///< of which each takes up to 0.1 ms
  static constexpr unsigned kStepsMax = 512;
  static constexpr unsigned kDepthMax = 32;

  struct Literal {
    MathValue value;
    bool is_whole = false;
  };

  std::optional<MathValue> factor(bool& is_whole);
  std::optional<MathValue> base(bool& is_whole);
  std::optional<Literal> decimal();
  std::optional<MathValue> fraction();
  std::optional<MathValue> root();
  std::optional<MathValue> group(std::string_view open, std::string_view close);
  /// What a command takes: a group in braces, a digit, or \pi.
  std::optional<MathValue> argument();
  std::optional<MathValue> exponent();
  /// "1/2" and "\frac{1}{2}" behind a whole number.
  std::optional<MathValue> part_of_mixed();
  [[nodiscard]] bool begins_fraction() const;
  [[nodiscard]] bool begins_implicit_factor(bool is_close) const;
  [[nodiscard]] std::size_t separator_bytes() const;
  /// False if the work is used up: then nothing is computed any more.
  bool spend(std::size_t operations);
  MathValue product(const MathValue& a, const MathValue& b);
  MathValue quotient(const MathValue& a, const MathValue& b);

  std::string_view text_;
  Commas commas_;
  std::size_t operations_;
  unsigned steps_ = kStepsMax;
  unsigned depth_ = 0;
};

}  // namespace weightcast
