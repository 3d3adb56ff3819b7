#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace weightcast {

/// Where the first NUL stands in `text`. No JSON text holds one, but nlohmann::json takes it for the end of its input:
/// whatever stands behind it would be accepted. So every text from outside is asked this before it is parsed.
[[nodiscard]] inline std::optional<std::size_t> find_nul(std::string_view text) {
  const std::size_t at = text.find('\0');
  if (at == std::string_view::npos) return std::nullopt;
  return at;
}

}  // namespace weightcast
