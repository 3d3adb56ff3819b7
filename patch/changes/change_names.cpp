#include "patch/changes/change_names.h"

#include <fmt/format.h>

#include <charconv>

namespace weightcast {
namespace {

/// Takes a number and what follows it off `text`.
bool take_number(std::string_view& text, std::string_view behind_it, std::uint64_t& number, char& behind) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto digits = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || digits == text.size()) return false;
  behind = text[digits];
  text.remove_prefix(digits + 1);
  return behind_it.find(behind) != std::string_view::npos;
}

}  // namespace

std::optional<std::uint64_t> volume_of(const Box& box) {
  std::uint64_t volume = 1;
  for (const Side& side : box) {
    if (__builtin_mul_overflow(volume, side.length, &volume)) return std::nullopt;
  }
  return volume;
}

std::string change_name(std::string_view prefix, const Box& box, std::string_view tensor) {
  std::string name(prefix);
  if (!box.empty()) {
    name.back() = '[';
    for (const Side& side : box) {
      name += fmt::format("{}{}+{}", &side == &box.front() ? "" : ",", side.start, side.length);
    }
    name += "]/";
  }
  return name.append(tensor);
}

std::optional<ChangeName> parse_change_name(std::string_view prefix, std::string_view name) {
  if (name.starts_with(prefix)) return ChangeName{{}, name.substr(prefix.size())};
  const std::string_view word = prefix.substr(0, prefix.size() - 1);
  if (!name.starts_with(word)) return std::nullopt;
  name.remove_prefix(word.size());
  if (!name.starts_with('[')) return std::nullopt;
  name.remove_prefix(1);
  ChangeName parsed;
  for (char behind = ','; behind == ',';) {
    Side& side = parsed.box.emplace_back();
    if (!take_number(name, "+", side.start, behind) || !take_number(name, ",]", side.length, behind)) {
      return std::nullopt;
    }
  }
  if (!name.starts_with('/')) return std::nullopt;
  parsed.tensor = name.substr(1);
  return parsed;
}

}  // namespace weightcast
