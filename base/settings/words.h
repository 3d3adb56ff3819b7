#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "base/settings/nearest_name.h"

namespace weightcast {

/// The words by which people choose a value of an enum, or read it, in the order of its values. All that parses, writes
/// or lists them goes through the one function beside the enum:
/// `constexpr Words<2> words_of(Enum) { return {"one", "two"}; }`.
template <std::size_t kCount>
using Words = std::array<std::string_view, kCount>;

template <typename Enum>
requires requires { words_of(Enum()); }
inline constexpr auto kWords = words_of(Enum());

/// Whether an enum has an enumerator of this value: compilers write a value without one as "(Enum)3".
template <auto kValue>
[[nodiscard]] consteval bool is_enumerator() {
  const std::string_view name = __PRETTY_FUNCTION__;
  const char behind = name[name.rfind(')') + 1];
  return behind < '0' || behind > '9';
}

/// Specialised for an enum whose last values have no word, because nobody may choose them.
template <typename Enum>
inline constexpr bool kHasUnnamedValues = false;

template <typename Enum>
requires requires { words_of(Enum()); }
[[nodiscard]] constexpr std::string_view to_string(Enum value) {
  static_assert(kHasUnnamedValues<Enum> || !is_enumerator<Enum(kWords<Enum>.size())>(), "an enumerator has no word");
  return kWords<Enum>[static_cast<std::size_t>(value)];
}

template <typename Enum>
[[nodiscard]] constexpr std::optional<Enum> find_word(std::string_view word) {
  const auto found = std::ranges::find(kWords<Enum>, word);
  if (found == kWords<Enum>.end()) return std::nullopt;
  return static_cast<Enum>(found - kWords<Enum>.begin());
}

/// Errors: kInvalidArgument, with unknown_name(); `what` says what it is a word of.
template <typename Enum>
[[nodiscard]] Result<Enum> parse_word(std::string_view what, std::string_view word) {
  if (const std::optional<Enum> found = find_word<Enum>(word)) return *found;
  return fail(Errc::kInvalidArgument, Op::kConfigure, unknown_name(what, word, kWords<Enum>));
}

}  // namespace weightcast
