#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weightcast {

/// The one of `names` with the least edit distance to `text`, the first of several; "" if it is far, or there are none.
[[nodiscard]] std::string_view nearest_name(std::string_view text, std::span<const std::string_view> names);

/// "'grp' is no WHAT; the nearest is 'grpo' (all: grpo, rloo)": the refusal of a name that is not known.
[[nodiscard]] std::string unknown_name(std::string_view what, std::string_view text,
                                       std::span<const std::string_view> names);

}  // namespace weightcast
