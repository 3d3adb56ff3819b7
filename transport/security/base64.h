#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace weightcast {

/// Appends the bytes as base64 with padding (RFC 4648, section 4). No other copy of them is left.
void append_base64(std::span<const std::byte> bytes, std::string& text);

}  // namespace weightcast
