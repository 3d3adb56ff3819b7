#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weightcast {

/// The bytes of the valid character that begins `text`; 0 if none does. `text` is not empty.
[[nodiscard]] std::size_t character_bytes(std::string_view text);

/// The bytes at the beginning of `text` that are valid UTF-8, or, if there are none, -n for n bytes that are not.
/// `text` is not empty.
[[nodiscard]] std::ptrdiff_t valid_utf8_prefix(std::string_view text);

/// Valid UTF-8 in Unicode's normal form C.
[[nodiscard]] std::string to_nfc(std::string_view text);

}  // namespace weightcast
