// Any text as a level: what is not refused keeps its player and its boxes, whatever is tried, and is printed as it is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainer/tasks/sokoban.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const std::string_view level(reinterpret_cast<const char*>(data), size);
  auto game = Sokoban::parse(level);
  if (!game) {
    WC_CHECK(!game.error().detail.empty());
    return 0;
  }
  const std::size_t boxes = game->boxes();
  for (std::size_t i = 0; i < std::min<std::size_t>(size, 64); ++i) {
    (void)game->step(static_cast<SokobanAction>(data[i] % 5));
    const std::string text = game->text();
    const auto count = [&](char wanted) {
      return static_cast<std::size_t>(std::count(text.begin(), text.end(), wanted));
    };
    WC_CHECK(count('@') + count('+') == 1);
    WC_CHECK(count('$') + count('*') == boxes && count('*') == game->boxes_on_targets());
    const auto again = Sokoban::parse(text);
    WC_CHECK(again.has_value() && again->text() == text);
  }
  if (const auto moves = game->solve(200)) {
    for (const SokobanAction move : *moves) (void)game->step(move);
    WC_CHECK(game->solved());
  }
  return 0;
}
