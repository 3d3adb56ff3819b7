#include "trainer/model/tokenizer/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "base/result.h"

namespace weightcast {

std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const std::size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than needed, surrogates, and beyond Unicode's last character.
  if ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f) ||
      (byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return bytes;
}

std::ptrdiff_t valid_utf8_prefix(std::string_view text) {
  std::size_t valid = 0;
  while (valid < text.size()) {
    const std::size_t bytes = character_bytes(text.substr(valid));
    if (bytes == 0) break;
    valid += bytes;
  }
  if (valid > 0) return static_cast<std::ptrdiff_t>(valid);
  std::size_t invalid = 1;
  while (invalid < text.size() && character_bytes(text.substr(invalid)) == 0) ++invalid;
  return -static_cast<std::ptrdiff_t>(invalid);
}

std::string to_nfc(std::string_view text) {
  // Below U+0300, whose first byte is 0xcc, nothing composes.
  const bool composes =
      std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xcc; });
  if (!composes) return std::string(text);
  utf8proc_uint8_t* result = nullptr;
  const auto bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  WC_CHECK(bytes >= 0);  // it fails for lack of memory, and for what is not UTF-8
  std::string normal(reinterpret_cast<const char*>(result), static_cast<std::size_t>(bytes));
  std::free(result);
  return normal;
}

}  // namespace weightcast
