#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weightcast {

/// Byte-level vocabularies write each byte as one printable character (GPT-2's table): 'Ġ' is a space.

/// `text` as bytes; absent if a character is none of the table.
[[nodiscard]] std::optional<std::string> bytes_of_byte_level(std::string_view text);

/// The character of one byte, in UTF-8.
[[nodiscard]] std::string byte_level_character(unsigned char byte);

}  // namespace weightcast
