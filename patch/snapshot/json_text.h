#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace weightcast {

/// The place of the first NUL in `text`. JSON text has none, but nlohmann::json takes a NUL for the end of its input
/// and would accept any bytes behind it. So all text from outside is checked before it is parsed.
[[nodiscard]] inline std::optional<std::size_t> find_nul(std::string_view text) {
  const std::size_t at = text.find('\0');
  if (at == std::string_view::npos) return std::nullopt;
  return at;
}

}  // namespace weightcast
