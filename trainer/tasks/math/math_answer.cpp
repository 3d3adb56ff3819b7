#include "trainer/tasks/math/math_answer.h"

#include <algorithm>
#include <utility>

#include "trainer/tasks/answer_text.h"
#include "trainer/tasks/math/math_form.h"
#include "trainer/tasks/math/math_reader.h"
#include "trainer/tasks/math/math_string.h"

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

/// The character that begins `text` with a byte beyond ASCII, and its bytes; of broken UTF-8 a sign.
std::pair<std::uint32_t, std::size_t> wide_character(string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  if (byte(0) >= 0xf0) return {0x10000, 4};
  if (byte(0) >= 0xe0) return {(byte(0) & 0xfU) << 12U | (byte(1) & 0x3fU) << 6U | (byte(2) & 0x3fU), 3};
  return {(byte(0) & 0x1fU) << 6U | (byte(1) & 0x3fU), 2};
}

/// Superscripts, Greek letters, arrows, operators: what is part of a formula.
bool is_sign(std::uint32_t character) {
  constexpr std::uint32_t kSigns[] = {0xac, 0xb1, 0xb2, 0xb3, 0xb9, 0xbc, 0xbd, 0xbe, 0xd7, 0xf7};
  return std::ranges::find(kSigns, character) != std::end(kSigns) || (character >= 0x370 && character < 0x400) ||
         (character >= 0x2070 && character < 0x20a0) || (character >= 0x2150 && character < 0x2c00);
}

/// Whether a number keeps its value beside these words: neither figures nor letters of a formula stand there, nor
/// words that say another value or leave it open.
bool is_words(string_view text) {
  static constexpr string_view kTelling[] = {
      "and",      "at",       "between", "billion",  "cubed",   "dozen", "either", "except",   "factorial", "half",
      "hundred",  "infinity", "least",   "less",     "million", "minus", "more",   "most",     "negative",  "neither",
      "no",       "nor",      "not",     "or",       "over",    "pi",    "plus",   "squared",  "than",      "thirds",
      "thousand", "times",    "to",      "trillion", "under",   "sqrt",  "root",   "quarters", "isn"};
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) >= 0x80) {
      const auto [character, bytes] = wide_character(text.substr(i));
      if (is_sign(character)) return false;
      i += bytes;
      continue;
    }
    if (!is_ascii_letter(text[i])) {
      // Typesetting around words, and what ends them. A hyphen joins two of them.
      const bool joins = (text[i] == '-' || text[i] == '/') && i > 0 && i + 1 < text.size() &&
                         is_ascii_letter(text[i - 1]) && is_ascii_letter(text[i + 1]);
      if (!joins && string_view(" \t\r*$\"'`.,!?%").find(text[i]) == string_view::npos) return false;
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && is_ascii_letter(text[end])) ++end;
    const std::string word = ascii_lower(text.substr(i, end - i));
    if (word.size() == 1 && word != "a") return false;
    if (std::ranges::find(kTelling, word) != std::end(kTelling)) return false;
    i = end;
  }
  return true;
}

/// The number that `line` says in words: the first of its first clause, if the rest of that is words or units.
std::optional<std::string> number_in_words(string_view line) {
  std::size_t begin = 0, bytes = 0;
  while (begin < line.size() && (bytes = number_bytes(line.substr(begin))) == 0) ++begin;
  if (bytes == 0 || !is_words(line.substr(0, begin))) return std::nullopt;
  // A word against a number is part of a formula, "2x", and so is one in front of it, "x2".
  if (begin > 0 && is_ascii_letter(line[begin - 1])) return std::nullopt;
  string_view rest = line.substr(begin + bytes);
  std::size_t end = rest.size();
  for (const string_view mark : {", ", "; ", ". ", " (", ": ", " - ", " because ", " since ", " so "}) {
    end = std::min(end, rest.find(mark));
  }
  // "1, 2" and "1, y = 2" go on.
  const string_view after = trim(rest.substr(std::min(rest.size(), end + 1)));
  const bool goes_on = end < rest.size() && rest[end] == ',' &&
                       (after.size() < 2 || !is_ascii_letter(after[0]) || !is_ascii_letter(after[1]));
  rest = rest.substr(0, end);
  if (goes_on || !is_words(rest) || (rest.size() == 1 && is_ascii_letter(rest[0]))) return std::nullopt;
  return std::string(line.substr(begin, bytes));
}

/// Whether what stands at [begin, begin + bytes) of `text` is a part of a formula rather than a number by itself.
bool is_in_formula(string_view text, std::size_t begin, std::size_t bytes) {
  const char before = begin > 0 ? text[begin - 1] : ' ';
  const string_view left = trim(text.substr(0, begin)), right = text.substr(begin + bytes);
  const auto is_one_of = [](char c, string_view all) { return all.find(c) != string_view::npos; };
  if (is_ascii_letter(before) || is_one_of(before, ":_{}^")) return true;
  if (!left.empty() && is_one_of(left.back(), "+*/^") && !left.ends_with("**")) return true;
  // "+4" has its sign in it.
  if (is_one_of(text[begin], "+-") && !left.empty() && (is_digit(left.back()) || is_one_of(left.back(), ")}]")))
    return true;
  if (right.empty()) return false;
  if (is_ascii_letter(right[0])) return right.size() == 1 || !is_ascii_letter(right[1]);
  return is_one_of(right[0], "^_\\{") || (is_one_of(right[0], ":/") && right.size() > 1 && right[1] != ' ');
}

std::optional<std::string> last_number(string_view text) {
  std::optional<std::string> last;
  for (std::size_t i = 0; i < text.size();) {
    // "16-3" has no number -3: a sign after a digit is a minus between two.
    const bool between = text[i] == '-' && i > 0 && (is_digit(text[i - 1]) || text[i - 1] == ')');
    const std::size_t bytes = between ? 0 : number_bytes(text.substr(i));
    if (bytes > 0) last = std::string(text.substr(i, bytes));
    if (bytes > 0 && is_in_formula(text, i, bytes)) last.reset();
    i += std::max<std::size_t>(bytes, 1);
  }
  return last;
}

/// The end of `response`, where an answer is looked for.
string_view searched(string_view response) {
  return response.substr(response.size() - std::min(response.size(), kSearchedBytesMax));
}

/// What stands behind the last mark of an answer, to the end of its line.
std::optional<string_view> marked_line(string_view response) {
  response = searched(response);
  constexpr string_view kMark = "####";
  if (const std::size_t mark = response.rfind(kMark); mark != string_view::npos) {
    return line_from(response, mark + kMark.size());
  }
  std::optional<std::size_t> begin;
  const std::string words = ascii_lower(response);
  for (const string_view phrase : {"answer is", "answer:"}) {
    const std::size_t found = words.rfind(phrase);
    if (found != string_view::npos) begin = std::max(begin.value_or(0), found + phrase.size());
  }
  if (!begin) return std::nullopt;
  return line_from(response, *begin);
}

string_view last_line(string_view response) {
  response = trim(searched(response));
  return trim(response.substr(response.rfind('\n') + 1));
}

std::optional<std::string> extract_auto(string_view response) {
  if (auto boxed = extract_boxed(response)) return boxed;
  const std::optional<string_view> line = marked_line(response);
  if (!line) return last_number(searched(response));
  if (line->empty()) return std::nullopt;
  if (read_math_form(*line)) return std::string(*line);
  if (auto number = number_in_words(*line)) return number;
  return std::string(*line);
}

/// Whether the whole line is the truth, with or without the end of a sentence.
bool line_is(string_view line, string_view truth) {
  if (line.empty()) return false;
  const string_view sentence = trim(line.substr(0, line.find(". ")));
  const string_view open = line.ends_with('.') ? trim(line.substr(0, line.size() - 1)) : line;
  return answers_equal(line, truth) || answers_equal(open, truth) || answers_equal(sentence, truth);
}

bool is_correct_auto(string_view response, string_view truth) {
  const auto boxed = extract_boxed(response);
  if (!boxed && line_is(marked_line(response).value_or(last_line(response)), truth)) return true;
  const auto answer = boxed ? boxed : extract_auto(response);
  return answer && answers_equal(*answer, truth);
}

}  // namespace

std::optional<MathNumber> parse_math_number(string_view text) {
  auto form = read_math_form(text);
  if (!form || form->kind != MathForm::Kind::kNumber) return std::nullopt;
  return MathNumber{std::move(form->text), std::move(form->unit)};
}

bool answers_equal(string_view a, string_view b) {
  if (trim(a) == trim(b)) return !trim(a).empty();
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
  if (method == AnswerMethod::kAuto) return is_correct_auto(response, truth);
  const auto answer = extract_answer(response, method);
  if (!answer) return false;
  switch (method) {
    case AnswerMethod::kBoxed: return math_strings_equal(*answer, truth);
    default: return *answer == truth;
  }
}

}  // namespace weightcast
