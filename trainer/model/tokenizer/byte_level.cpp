#include "trainer/model/tokenizer/byte_level.h"

#include <array>

namespace weightcast {
namespace {

constexpr char32_t kFirstStandIn = 256;
constexpr std::size_t kStandIns = 68;

constexpr bool is_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/// Bytes that are no printable character of Latin-1 get the characters from 256 on, in their order.
constexpr std::array<char32_t, 256> kCharacters = [] {
  std::array<char32_t, 256> characters{};
  char32_t next = kFirstStandIn;
  for (unsigned byte = 0; byte < 256; ++byte) characters[byte] = is_itself(byte) ? byte : next++;
  return characters;
}();

constexpr std::array<unsigned char, kFirstStandIn + kStandIns> kBytes = [] {
  std::array<unsigned char, kFirstStandIn + kStandIns> bytes{};
  for (unsigned byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = static_cast<unsigned char>(byte);
  return bytes;
}();

}  // namespace

std::optional<std::string> bytes_of_byte_level(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    char32_t character = first;
    if (first < 0x80) {
      ++i;
    } else {
      // All characters of the table have at most two bytes.
      if ((first & 0xe0) != 0xc0 || i + 1 >= text.size()) return std::nullopt;
      character = (first & 0x1fu) << 6 | (static_cast<unsigned char>(text[i + 1]) & 0x3fu);
      i += 2;
    }
    if (character >= kBytes.size() || kCharacters[kBytes[character]] != character) return std::nullopt;
    bytes += static_cast<char>(kBytes[character]);
  }
  return bytes;
}

std::string byte_level_character(unsigned char byte) {
  const char32_t character = kCharacters[byte];
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 0x3f))};
}

}  // namespace weightcast
