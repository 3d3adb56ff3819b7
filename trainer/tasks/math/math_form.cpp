#include "trainer/tasks/math/math_form.h"

#include <algorithm>
#include <utility>

#include "trainer/tasks/answer_text.h"
#include "trainer/tasks/math/math_reader.h"
#include "trainer/tasks/math/math_string.h"

namespace weightcast {
namespace {

using std::string_view;
using Commas = MathReader::Commas;

constexpr std::size_t kBytesMax = 1024;
constexpr unsigned kDepthMax = 4;
constexpr std::size_t kPartsMax = 64;

bool is_opening(char c) { return c == '(' || c == '[' || c == '{'; }
bool is_closing(char c) { return c == ')' || c == ']' || c == '}'; }

/// Where the bracket that begins `text` is closed; npos if it is not.
std::size_t closing_bracket(string_view text) {
  std::size_t open = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_opening(text[i])) ++open;
    if (is_closing(text[i]) && --open == 0) return i;
  }
  return string_view::npos;
}

/// Whether a word behind a number makes it another one: "5 million", "5 squared".
bool changes_value(string_view text) {
  static constexpr string_view kWords[] = {"and",     "billion", "cubed",    "dozen", "factorial", "half",
                                           "hundred", "million", "minus",    "or",    "over",      "pi",
                                           "plus",    "squared", "thousand", "times", "to",        "trillion"};
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_ascii_letter(text[end])) ++end;
    const std::string word = ascii_lower(text.substr(i, end - i));
    if (std::ranges::find(kWords, word) != std::end(kWords)) return true;
    i = end + 1;
  }
  return false;
}

/// Whether `text` begins with a superscript, a fraction, or a sign between numbers: no unit, but behind one, "cm²".
bool begins_with_sign(string_view text) {
  static constexpr string_view kSigns[] = {"\u00b1", "\u00b2", "\u00b3", "\u00b9", "\u00bc", "\u00bd",
                                           "\u00be", "\u00d7", "\u00f7", "\u03c0", "\u221a", "\u221e"};
  // U+2070 to U+207F, and U+2150 to U+215F.
  const auto is_third = [&](char least) {
    return text.size() > 2 && static_cast<unsigned char>(text[2]) >= static_cast<unsigned char>(least);
  };
  if (text.starts_with("\xe2\x81") && is_third('\xb0')) return true;
  if (text.starts_with("\xe2\x85") && is_third('\x90') && !is_third('\xa0')) return true;
  return std::ranges::any_of(kSigns, [&](string_view sign) { return text.starts_with(sign); });
}

/// "x" of a bare "2x", "y" of "3 y": no unit that anybody writes so. `text` is what follows the number.
bool is_variable(string_view text, std::string letters) {
  if (text.find('\\') != string_view::npos) return false;
  std::erase_if(letters, is_digit);
  if (letters.size() == 1) return string_view("abeijknqruvwxyz").find(letters[0]) != string_view::npos;
  const bool is_close = !text.empty() && is_ascii_letter(text.front());
  return is_close && letters.size() <= 3 && letters.find_first_not_of("abcknxyz") == string_view::npos;
}

/// The letters of what follows a number, or nothing if that is no unit.
std::optional<std::string> read_unit(string_view text) {
  if (changes_value(text)) return std::nullopt;
  std::string unit;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_ascii = static_cast<unsigned char>(c) < 0x80;
    if (!is_ascii && unit.empty() && begins_with_sign(text.substr(i))) return std::nullopt;
    if (is_ascii_letter(c) || !is_ascii) {
      unit += c;
    } else if (c == '\\') {
      // A command that sets type (\text, \mathrm) is none of the unit; another one (\infty) makes it no unit.
      std::size_t end = i + 1;
      while (end < text.size() && is_ascii_letter(text[end])) ++end;
      const string_view command = text.substr(i + 1, end - i - 1);
      if (command == "circ") unit += "degrees";
      if (!command.empty() && command != "text" && command != "mathrm" && command != "mbox" && command != "circ" &&
          command != "textbf") {
        return std::nullopt;
      }
      i = end - 1;
    } else if (is_digit(c)) {
      // Of "cm^2" and "cm^{2}".
      const bool is_power = i > 0 && (text[i - 1] == '^' || (text[i - 1] == '{' && i > 1 && text[i - 2] == '^'));
      if (!is_power || unit.empty()) return std::nullopt;
      unit += c;
    } else if (!is_space(c) && string_view("%.{}^/$!,;:)*").find(c) == string_view::npos) {
      return std::nullopt;
    }
  }
  // A power of the number that is none: "2^n".
  const bool has_power = text.starts_with('^') && !text.starts_with("^\\circ") && !text.starts_with("^{\\circ}") &&
                         !text.starts_with("^{}");
  if (has_power || is_variable(text, unit)) return std::nullopt;
  return ascii_lower(unit);
}

/// Skips "x =" in front of a value.
void skip_variable(MathReader& reader) {
  MathReader ahead = reader;
  ahead.skip_space();
  const string_view text = ahead.rest();
  if (text.empty() || !is_ascii_letter(text.front())) return;
  ahead.skip(text.substr(0, 1));
  ahead.skip_space();
  if (ahead.skip("=")) reader = ahead;
}

std::optional<MathForm> read_number(string_view text, Commas commas) {
  MathReader reader(text, commas);
  skip_variable(reader);
  reader.skip_space();
  const auto value = reader.expression();
  if (!value || !value->fits()) return std::nullopt;
  reader.skip_space();
  auto unit = read_unit(reader.rest());
  if (!unit) return std::nullopt;
  return MathForm{MathForm::Kind::kNumber, value->text(), std::move(*unit), {}};
}

std::optional<MathForm> read_choice(string_view text) {
  const bool is_bracketed = text.size() > 2 && text.front() == '(' && text.back() == ')';
  std::string letter = is_bracketed ? without_typesetting(text.substr(1, text.size() - 2)) : std::string(text);
  if (letter.size() != 1 || letter[0] < 'A' || letter[0] > 'Z') return std::nullopt;
  return MathForm{MathForm::Kind::kChoice, std::move(letter), "", {}};
}

/// Equal for parts that are equal, but for their units.
std::string sort_key(const MathForm& form) {
  std::string key = static_cast<char>('0' + static_cast<int>(form.kind)) + form.text;
  for (const MathForm& part : form.parts) key += '\0' + sort_key(part);
  return key;
}

MathForm make_set(std::vector<MathForm> parts) {
  std::ranges::stable_sort(parts, {}, sort_key);
  parts.erase(std::unique(parts.begin(), parts.end(), forms_equal), parts.end());
  return {MathForm::Kind::kSet, "", "", std::move(parts)};
}

std::optional<MathForm> read_brackets(string_view text, unsigned depth);

MathForm read_part(string_view text, unsigned depth) {
  text = trim(text);
  if (auto number = read_number(text, Commas::kSeparateElements)) return std::move(*number);
  if (auto nested = read_brackets(text, depth + 1)) return std::move(*nested);
  return {MathForm::Kind::kText, math_string_form(text).value_or(std::string(text)), "", {}};
}

/// A set in braces, or a point or an interval in brackets.
std::optional<MathForm> read_brackets(string_view text, unsigned depth) {
  if (depth == kDepthMax) return std::nullopt;
  const bool is_set = text.starts_with("\\{") && text.ends_with("\\}");
  if (is_set) text = text.substr(1);
  if (text.empty() || !is_opening(text.front()) || closing_bracket(text) != text.size() - 1) return std::nullopt;
  const bool is_tuple = text.front() != '{';
  const string_view inside = text.substr(1, text.size() - (is_set ? 3 : 2));
  std::vector<MathForm> parts;
  std::size_t open = 0, begin = 0;
  for (std::size_t i = 0; i <= inside.size(); ++i) {
    if (i < inside.size() && is_opening(inside[i])) ++open;
    if (i < inside.size() && is_closing(inside[i]) && open > 0) --open;
    // TeX's {,} is no comma of the list.
    const bool is_comma = i < inside.size() && inside[i] == ',' && open == 0;
    if (i < inside.size() && !is_comma) continue;
    if (parts.size() == kPartsMax) return std::nullopt;
    parts.push_back(read_part(inside.substr(begin, i - begin), depth));
    begin = i + 1;
  }
  if (!is_tuple) return make_set(std::move(parts));
  if (parts.size() < 2) return std::nullopt;
  return MathForm{MathForm::Kind::kTuple, {text.front(), text.back()}, "", std::move(parts)};
}

/// Numbers without brackets: "1, 2", "x = 1 or x = 2".
std::optional<MathForm> read_list(string_view text) {
  MathReader reader(text);
  std::vector<MathForm> parts;
  while (parts.size() < kPartsMax) {
    skip_variable(reader);
    reader.skip_space();
    const auto value = reader.expression();
    if (!value || !value->fits()) return std::nullopt;
    parts.push_back({MathForm::Kind::kNumber, value->text(), "", {}});
    reader.skip_space();
    if (reader.rest().empty()) {
      return parts.size() < 2 ? std::nullopt : std::optional(make_set(std::move(parts)));
    }
    bool is_separated = reader.skip(",");
    reader.skip_space();
    for (const string_view word : {"and", "or", "\\text{and}", "\\text{or}", "\\text{ and }", "\\text{ or }"}) {
      is_separated = (is_ascii_letter(word.back()) ? reader.skip_word(word) : reader.skip(word)) || is_separated;
    }
    if (!is_separated) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::string without_typesetting(string_view text) {
  if (text.size() > kBytesMax) return std::string(text);
  const std::string plain = replaced(replaced(replaced(text, "\\left", ""), "\\right", ""), "\\displaystyle", "");
  string_view inner = trim(plain);
  for (bool found = true; found;) {
    found = false;
    const auto strip = [&](string_view before, string_view after) {
      if (inner.size() < before.size() + after.size() || !inner.starts_with(before) || !inner.ends_with(after)) return;
      // \text{a} and \text{b}: the last brace closes another one.
      const std::size_t open = before.size() - 1;
      if (before.ends_with('{') && open + closing_bracket(inner.substr(open)) != inner.size() - 1) return;
      inner = trim(inner.substr(before.size(), inner.size() - before.size() - after.size()));
      found = true;
    };
    strip("$", "$");
    strip("\\(", "\\)");
    strip("\\[", "\\]");
    for (const string_view command : {"\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{", "\\mbox{", "\\boxed{"}) {
      strip(command, "}");
    }
    if (inner.size() > 1 && inner.ends_with('.')) strip("", ".");
  }
  return std::string(inner);
}

std::optional<MathForm> read_math_form(string_view text) {
  if (text.size() > kBytesMax) return std::nullopt;
  const std::string plain = without_typesetting(text);
  if (auto choice = read_choice(plain)) return choice;
  if (auto number = read_number(plain, Commas::kSeparateThousands)) return number;
  if (auto brackets = read_brackets(plain, 0)) return brackets;
  return read_list(plain);
}

bool forms_equal(const MathForm& a, const MathForm& b) {
  return a.kind == b.kind && a.text == b.text && (a.unit.empty() || b.unit.empty() || a.unit == b.unit) &&
         std::ranges::equal(a.parts, b.parts, forms_equal);
}

}  // namespace weightcast
