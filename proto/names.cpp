#include "proto/names.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "proto/limits.h"

namespace weightcast {
namespace {

constexpr std::string_view kNameMarks = "-_.:/@";
constexpr std::string_view kHostMarks = "-_.:%";
// Enough of a wrong name to know it by.
constexpr std::size_t kQuotedBytesMax = 64;

// Not std::isalnum(), which asks the locale.
bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool has_only(std::string_view text, std::string_view marks) {
  return std::ranges::all_of(text,
                             [&](char c) { return is_letter_or_digit(c) || marks.find(c) != std::string_view::npos; });
}

std::string quoted(std::string_view text) {
  const std::string shown = printable(cut_text(text, kQuotedBytesMax));
  return fmt::format("\"{}{}\"", shown, text.size() > kQuotedBytesMax ? "..." : "");
}

}  // namespace

Status check_node_name(std::string_view name) {
  const auto refuse = [&](std::string_view why) {
    return fail(
        Errc::kInvalidArgument, Op::kConfigure,
        fmt::format("the name {} {}; a name has 1 to {} bytes: letters, digits and {}, a letter or a digit first",
                    quoted(name), why, kNameBytesMax, kNameMarks));
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > kNameBytesMax) return refuse("is too long");
  if (!has_only(name, kNameMarks)) return refuse("has a character that is not allowed");
  if (!is_letter_or_digit(name.front())) return refuse("does not begin with a letter or a digit");
  return {};
}

Status check_host(std::string_view host) {
  if (host.size() <= kNameBytesMax && has_only(host, kHostMarks)) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("{} is not a host; a host has at most {} bytes: letters, digits and {}", quoted(host),
                          kNameBytesMax, kHostMarks));
}

bool matches_pattern(std::string_view pattern, std::string_view text) {
  // Where the last * stands, and where the text goes on behind what it stands for.
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  std::size_t p = 0;
  std::size_t n = 0;
  while (n < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == text[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace weightcast
