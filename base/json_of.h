#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace weightcast {

/// null if absent.
template <typename T>
[[nodiscard]] nlohmann::json json_or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

/// `json` with the members of `more` added.
[[nodiscard]] inline nlohmann::json merged(nlohmann::json json, const nlohmann::json& more) {
  json.update(more);
  return json;
}

/// An object of `values`. `expressions` are their text, with commas between: the last name in each is its value's.
template <typename... Values>
[[nodiscard]] nlohmann::json json_of_named(std::string_view expressions, Values&&... values) {
  nlohmann::json json = nlohmann::json::object();
  const auto add = [&](auto&& value) {
    const std::size_t comma = expressions.find(',');
    std::string_view name = expressions.substr(0, comma);
    expressions.remove_prefix(comma == std::string_view::npos ? expressions.size() : comma + 1);
    if (name.ends_with("()")) name.remove_suffix(2);
    name.remove_prefix(name.find_last_of(".> ") + 1);
    nlohmann::json& member = json[std::string(name)];
    if constexpr (requires { json_or_null(value); }) {
      member = json_or_null(value);
    } else {
      member = std::forward<decltype(value)>(value);
    }
  };
  (add(std::forward<Values>(values)), ...);
  return json;
}

}  // namespace weightcast

/// WC_JSON_OF(node.name, status.topology, one.tokens_per_s()) is {"name": ..., "topology": ..., "tokens_per_s": ...}.
/// So a member with another name changes the output. Takes names, members, and calls without arguments.
#define WC_JSON_OF(...) ::weightcast::json_of_named(#__VA_ARGS__, __VA_ARGS__)
