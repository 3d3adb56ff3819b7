#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace weightcast {
namespace {

constexpr std::size_t kCharacterBytesMax = 4;

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  ///< 0: no UTF-8 begins here
};

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

/// The first character of `text`, which is not empty (The Unicode Standard, table 3-7).
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!continues(text[i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  }
  const std::uint32_t least = bytes == 2 ? 0x80 : bytes == 3 ? 0x800 : 0x10000;
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < least || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

/// C0 with delete, and C1, which terminals obey as they obey escape sequences.
bool is_control(std::uint32_t code) { return code < 0x20 || (code >= 0x7f && code <= 0x9f); }

/// Line and paragraph separators; marks, embeddings, overrides and isolates that reorder what stands beside them.
bool reorders(std::uint32_t code) {
  return code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

void append_bytes(std::string& out, std::string_view bytes) {
  for (const char c : bytes) fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
}

void append_printable(std::string& out, std::string_view bytes, std::uint32_t code) {
  switch (code) {
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (is_control(code)) return append_bytes(out, bytes);
  if (reorders(code)) {
    fmt::format_to(std::back_inserter(out), "\\u{{{:x}}}", code);
  } else {
    out += bytes;
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_character(text);
    const std::string_view bytes = text.substr(0, std::max<std::size_t>(1, next.bytes));
    if (next.bytes == 0) {
      append_bytes(out, bytes);
    } else {
      append_printable(out, bytes, next.code);
    }
    text.remove_prefix(bytes.size());
  }
  return out;
}

std::string_view cut_text(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  const std::size_t least = end - std::min(end, kCharacterBytesMax - 1);
  while (end > least && continues(text[end])) --end;
  return text.substr(0, end);
}

std::string hex_of(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::byte b : bytes) fmt::format_to(std::back_inserter(out), "{:02x}", std::to_integer<unsigned>(b));
  return out;
}

}  // namespace weightcast
