#include "patch/changes/differing_cells.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace weightcast {
namespace {

/// Cells of any width, of which some differ from those before by one bit of one of their bytes.
struct AnyCells {
  std::mt19937 random{*rc::gen::arbitrary<unsigned>()};
  const std::size_t width = std::size_t{1} << random() % 5;
  const std::size_t count = random() % 5000;
  std::vector<std::byte> before = std::vector<std::byte>(count * width), now;
  std::vector<std::uint32_t> changed;

  AnyCells() {
    const auto one_of = unsigned(1 + random() % 300);
    for (std::byte& byte : before) byte = std::byte(random() % 256);
    now = before;
    for (std::size_t cell = 0; cell < count; ++cell) {
      if (random() % one_of != 0) continue;
      now[cell * width + random() % width] ^= std::byte(1u << random() % 8);
      changed.push_back(std::uint32_t(cell));
    }
  }
};

RC_GTEST_PROP(DifferingCells, AreThoseThatDiffer, ()) {
  const AnyCells any;
  std::vector<std::uint32_t> expected{7}, cells{7};
  for (const std::uint32_t cell : any.changed) expected.push_back(1000 + cell);
  append_differing_cells(any.before, any.now, any.width, 1000, cells);
  RC_ASSERT(cells == expected);
}

RC_GTEST_PROP(DifferingCells, UpdateAShadowAndAreListedAsFarAsThereIsRoom, ()) {
  AnyCells any;
  auto& [random, width, count, shadow, now, numbers] = any;
  std::vector<std::byte> values;
  for (const std::uint32_t cell : numbers) {
    values.insert(values.end(), now.begin() + long(cell * width), now.begin() + long((cell + 1) * width));
  }
  const std::size_t room = random() % 2 == 0 ? count : random() % (count + 1);
  std::vector<std::uint32_t> found(room + 1, 77);
  std::vector<std::byte> found_values((room + 1) * width, std::byte{77});
  const CellLists lists{std::span(found).first(room), std::span(found_values).first(room * width)};
  RC_ASSERT(update_shadow(shadow, now, width, lists) == numbers.size());
  RC_ASSERT(shadow == now);
  const std::size_t listed = std::min(room, numbers.size());
  RC_ASSERT(std::equal(found.begin(), found.begin() + long(listed), numbers.begin()));
  RC_ASSERT(std::equal(found_values.begin(), found_values.begin() + long(listed * width), values.begin()));
  RC_ASSERT(found[room] == 77u && found_values[room * width] == std::byte{77});
  RC_ASSERT(update_shadow(shadow, now, width, lists) == 0u);
}

}  // namespace
}  // namespace weightcast
