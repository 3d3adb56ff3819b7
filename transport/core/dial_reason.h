#pragma once

#include <string>
#include <string_view>

namespace weightcast {

/// Why a dial failed, from the `detail` of its error: without "to ADDRESS: " before it and the advice behind a ';'.
/// Workers and origin name the address beside it. The result is a part of `detail`.
[[nodiscard]] std::string_view dial_reason(std::string_view detail, const std::string& address);

}  // namespace weightcast
