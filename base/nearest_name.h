#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// The one of `names` with the least edit distance to `text`, the first of several; "" if there are no names.
[[nodiscard]] std::string_view nearest_name(std::string_view text, std::span<const std::string_view> names);

/// "'grp' is no WHAT; the nearest is 'grpo' (all: grpo, rloo)": the refusal of a name that is not known.
[[nodiscard]] std::string unknown_name(std::string_view what, std::string_view text,
                                       std::span<const std::string_view> names);

/// The value of an enum whose names are `names`, in its order. Errors: kInvalidArgument, with unknown_name().
template <typename Enum, std::size_t kCount>
[[nodiscard]] Result<Enum> parse_name(std::string_view what, std::string_view text,
                                      const std::array<std::string_view, kCount>& names) {
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  return fail(Errc::kInvalidArgument, Op::kParse, unknown_name(what, text, names));
}

}  // namespace weightcast
