#include "tasks/math/math_answer.h"

#include <algorithm>
#include <utility>

#include "tasks/answer_text.h"
#include "tasks/math/math_form.h"
#include "tasks/math/math_reader.h"
#include "tasks/math/math_string.h"

namespace weightcast {
namespace {

using std::string_view;

// Where a number or a phrase is looked for: the end of a response, as the search is quadratic in the worst case.
constexpr std::size_t kSearchedBytesMax = 4096;

/// How many bytes of `text` a number in front of it takes; 0 if there is none. Words are no numbers, not even "pi".
std::size_t number_bytes(string_view text) {
  if (text.empty() || is_ascii_letter(text.front()) ||
      string_view("( \t\r\n~").find(text.front()) != string_view::npos) {
    return 0;
  }
  MathReader reader(text, MathReader::Commas::kSeparateThousands, MathReader::Values::kSkipped);
  return reader.term() ? text.size() - reader.rest().size() : 0;
}

/// What stands between `begin` and the end of its line.
string_view line_from(string_view text, std::size_t begin) {
  return trim(text.substr(begin, text.find('\n', begin) - begin));
}

/// The first number in `text`, as it is written there.
std::optional<std::string> first_number(string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const std::size_t bytes = number_bytes(text.substr(i)); bytes > 0) return std::string(text.substr(i, bytes));
  }
  return std::nullopt;
}

std::optional<std::string> last_number(string_view text) {
  std::optional<std::string> last;
  for (std::size_t i = 0; i < text.size();) {
    // "16-3" has no number -3: a sign after a digit is a minus between two.
    const bool between = text[i] == '-' && i > 0 && (is_digit(text[i - 1]) || text[i - 1] == ')');
    const std::size_t bytes = between ? 0 : number_bytes(text.substr(i));
    if (bytes > 0) last = std::string(text.substr(i, bytes));
    i += std::max<std::size_t>(bytes, 1);
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
  if (read_math_form(line)) return std::string(line);
  if (auto number = first_number(line)) return number;
  if (line.empty()) return std::nullopt;
  return std::string(line);
}

}  // namespace

std::optional<MathNumber> parse_math_number(string_view text) {
  auto form = read_math_form(text);
  if (!form || form->kind != MathForm::Kind::kNumber) return std::nullopt;
  return MathNumber{std::move(form->text), std::move(form->unit)};
}

bool answers_equal(string_view a, string_view b) {
  const auto left = read_math_form(a), right = read_math_form(b);
  if (left && right) return forms_equal(*left, *right);
  return math_strings_equal(without_typesetting(a), without_typesetting(b));
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
