#include "base/settings/nearest_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "base/text.h"

namespace weightcast {
namespace {

// A name from outside may be of any length, and the distance takes the product of both.
constexpr std::size_t kComparedBytesMax = 64;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view text, std::span<const std::string_view> names) {
  std::string_view nearest;
  std::size_t least = 0;
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(text.substr(0, kComparedBytesMax), name);
    if (nearest.empty() || distance < least) {
      nearest = name;
      least = distance;
    }
  }
  // What is further away is no misspelling of it.
  return 2 * least <= std::max(text.size(), nearest.size()) ? nearest : std::string_view();
}

std::string unknown_name(std::string_view what, std::string_view text, std::span<const std::string_view> names) {
  const std::string_view nearest = nearest_name(text, names);
  return fmt::format("'{}' is no {}{} (all: {})", printable(cut_text(text, kComparedBytesMax)), what,
                     nearest.empty() ? "" : fmt::format("; the nearest is '{}'", nearest), fmt::join(names, ", "));
}

}  // namespace weightcast
