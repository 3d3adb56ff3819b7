#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/nearest_name.h"
#include "base/result.h"

namespace weightcast {

/// A value of an enum, and the word by which people choose it. An enum has one table of them beside it, which all that
/// reads, writes or lists its words goes through: `constexpr auto words_of(Enum)`, a function that returns an array.
template <typename Enum>
struct Word {
  Enum value;
  std::string_view name;
};

/// The word of `value`, which has one.
template <typename Enum>
requires requires { words_of(Enum()); }
[[nodiscard]] constexpr std::string_view to_string(Enum value) {
  for (const auto& word : words_of(value)) {
    if (word.value == value) return word.name;
  }
  return "";
}

template <typename Enum>
[[nodiscard]] constexpr std::optional<Enum> find_word(std::string_view name) {
  for (const auto& word : words_of(Enum())) {
    if (word.name == name) return word.value;
  }
  return std::nullopt;
}

/// All words, in the table's order. They live as long as the program.
template <typename Enum>
[[nodiscard]] std::vector<std::string_view> words() {
  std::vector<std::string_view> names;
  for (const auto& word : words_of(Enum())) names.push_back(word.name);
  return names;
}

/// The value that `name` chooses, of which `what` says what it is. Errors: kInvalidArgument, with unknown_name().
template <typename Enum>
[[nodiscard]] Result<Enum> parse_word(std::string_view what, std::string_view name) {
  if (const std::optional<Enum> found = find_word<Enum>(name)) return *found;
  return fail(Errc::kInvalidArgument, Op::kConfigure, unknown_name(what, name, words<Enum>()));
}

}  // namespace weightcast
