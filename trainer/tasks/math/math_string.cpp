#include "trainer/tasks/math/math_string.h"

#include <vector>

#include "trainer/tasks/answer_text.h"

namespace weightcast {
namespace {

using std::string_view;

constexpr std::size_t kClipCharacters = 300;

bool is_number_character(char c) { return (c >= '0' && c <= '9') || c == '.' || c == ','; }
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80; }

/// The last `characters` of UTF-8 text.
string_view clip_end(string_view text, std::size_t characters) {
  std::size_t begin = text.size();
  while (begin > 0 && characters > 0) {
    --begin;
    if (!continues_character(text[begin])) --characters;
  }
  return text.substr(begin);
}

/// The bytes of the character that begins `text`, which is not empty.
std::size_t character_bytes(string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() && continues_character(text[bytes])) ++bytes;
  return bytes;
}

/// -?[0-9.,]+ at `begin`: its end, or `begin` if there is none.
std::size_t number_end(string_view text, std::size_t begin) {
  const std::size_t digits = begin < text.size() && text[begin] == '-' ? begin + 1 : begin;
  std::size_t end = digits;
  while (end < text.size() && is_number_character(text[end])) ++end;
  return end == digits ? begin : end;
}

/// \sqrt3 as \sqrt{3}. Absent where a \sqrt has no argument.
std::optional<std::string> fix_roots(const std::string& text) {
  const auto parts = split(text, "\\sqrt");
  std::string result(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const string_view part = parts[i];
    if (part.empty()) return std::nullopt;
    result += "\\sqrt";
    if (part[0] == '{') {
      result += part;
      continue;
    }
    const std::size_t first = character_bytes(part);
    result.append("{").append(part.substr(0, first)).append("}").append(part.substr(first));
  }
  return result;
}

/// \frac12 as \frac{1}{2}. Absent where a \frac ends the text; unchanged where one has a single character.
std::optional<std::string> fix_fractions(const std::string& text) {
  const auto parts = split(text, "\\frac");
  std::string result(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const string_view part = parts[i];
    if (part.empty()) return std::nullopt;
    result += "\\frac";
    if (part[0] == '{') {
      result += part;
      continue;
    }
    const std::size_t first = character_bytes(part);
    if (first == part.size()) return text;
    const std::size_t second = character_bytes(part.substr(first));
    const string_view above = part.substr(0, first), below = part.substr(first, second);
    result.append("{").append(above).append("}");
    if (below == "{") {
      result += below;
    } else {
      result.append("{").append(below).append("}");
    }
    result += part.substr(first + second);
  }
  return result;
}

/// As Python prints it: no leading zeros, no "-0".
bool is_canonical_integer(string_view text) {
  if (text == "0") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text[0] != '0' && text.find_first_not_of("0123456789") == string_view::npos;
}

/// 1/2 as \frac{1}{2}, of two integers alone.
std::string fix_slash(const std::string& text) {
  const auto parts = split(text, "/");
  if (parts.size() != 2 || !is_canonical_integer(parts[0]) || !is_canonical_integer(parts[1])) return text;
  std::string result = "\\frac{";
  return result.append(parts[0]).append("}{").append(parts[1]).append("}");
}

}  // namespace

std::optional<std::string> extract_strict(string_view response) {
  constexpr string_view kMark = "#### ";
  const string_view text = clip_end(response, kClipCharacters);
  std::optional<std::string> answer;
  for (std::size_t mark = text.find(kMark); mark != string_view::npos; mark = text.find(kMark, mark + 1)) {
    const std::size_t begin = mark + kMark.size(), end = number_end(text, begin);
    if (end > begin) answer = replaced(text.substr(begin, end - begin), ",", "");
  }
  return answer;
}

std::optional<std::string> extract_flexible(string_view response) {
  const string_view text = clip_end(response, kClipCharacters);
  std::optional<std::string> first, last;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = number_end(text, begin);
    if (end == begin) {
      ++begin;
      continue;
    }
    const string_view number = text.substr(begin, end - begin);
    if (!first) first = std::string(number);
    if (number != ".") last = std::string(number);
    begin = end;
  }
  return last ? last : first;
}

std::optional<std::string> extract_boxed(string_view response) {
  constexpr string_view kBox = "\\boxed", kSpacedBox = "\\boxed ", kBracedBox = "\\boxed{";
  if (const std::size_t spaced = response.rfind(kSpacedBox); spaced != string_view::npos) {
    return std::string(split(response.substr(spaced + kSpacedBox.size()), "$")[0]);
  }
  // \fbox is found, too, and then refused: it does not begin as a box does.
  const std::size_t begin = response.rfind(kBox);
  if (begin == string_view::npos) return std::nullopt;
  int open = 0;
  for (std::size_t i = begin; i < response.size(); ++i) {
    if (response[i] == '{') ++open;
    if (response[i] != '}' || --open != 0) continue;
    const string_view box = response.substr(begin, i + 1 - begin);
    if (!box.starts_with(kBracedBox)) return std::nullopt;
    return std::string(box.substr(kBracedBox.size(), box.size() - kBracedBox.size() - 1));
  }
  return std::nullopt;
}

std::optional<std::string> math_string_form(string_view given) {
  std::string text(given);
  constexpr std::pair<string_view, string_view> kBeforeUnits[] = {
      {"\n", ""},     {"\\!", ""},     {"\\\\", "\\"},    {"tfrac", "frac"}, {"dfrac", "frac"},
      {"\\left", ""}, {"\\right", ""}, {"^{\\circ}", ""}, {"^\\circ", ""},   {"\\$", ""},
  };
  for (const auto& [from, to] : kBeforeUnits) text = replaced(text, from, to);
  const auto units = split(text, "\\text{ ");
  if (units.size() > 2) return std::nullopt;
  text = std::string(units[0]);
  constexpr std::pair<string_view, string_view> kAfterUnits[] = {
      {"\\\\%", ""}, {"\\%", ""}, {" .", " 0."}, {"{.", "{0."}};
  for (const auto& [from, to] : kAfterUnits) text = replaced(text, from, to);
  if (text.empty()) return text;
  if (text[0] == '.') text.insert(0, "0");
  if (const auto sides = split(text, "="); sides.size() == 2) {
    std::size_t left_characters = 0;
    for (const char c : sides[0]) left_characters += continues_character(c) ? 0 : 1;
    if (left_characters <= 2) text = std::string(sides[1]);
  }
  auto rooted = fix_roots(text);
  if (!rooted) return std::nullopt;
  auto fractions = fix_fractions(replaced(*rooted, " ", ""));
  if (!fractions) return std::nullopt;
  if (*fractions == "0.5") return "\\frac{1}{2}";
  return fix_slash(*fractions);
}

bool math_strings_equal(string_view a, string_view b) {
  const auto left = math_string_form(a), right = math_string_form(b);
  return left && right ? *left == *right : a == b;
}

}  // namespace weightcast
