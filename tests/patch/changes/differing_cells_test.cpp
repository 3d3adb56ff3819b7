#include "patch/changes/differing_cells.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace weightcast {
namespace {

RC_GTEST_PROP(DifferingCells, AreThoseThatDiffer, ()) {
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  const std::size_t width = std::size_t{1} << random() % 5;
  const std::size_t count = random() % 5000;
  const auto one_of = unsigned(1 + random() % 300);
  std::vector<std::byte> before(count * width), now;
  for (std::byte& byte : before) byte = std::byte(random() % 256);
  now = before;
  std::vector<std::uint32_t> expected{7};
  for (std::size_t cell = 0; cell < count; ++cell) {
    if (random() % one_of != 0) continue;
    // One bit of one of its bytes.
    now[cell * width + random() % width] ^= std::byte(1u << random() % 8);
    expected.push_back(std::uint32_t(1000 + cell));
  }
  std::vector<std::uint32_t> cells{7};
  append_differing_cells(before, now, width, 1000, cells);
  RC_ASSERT(cells == expected);
}

RC_GTEST_PROP(DifferingCells, UpdateAShadowAndAreListedAsFarAsThereIsRoom, ()) {
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  const std::size_t width = std::size_t{1} << random() % 5;
  const std::size_t count = random() % 5000;
  const auto one_of = unsigned(1 + random() % 300);
  std::vector<std::byte> shadow(count * width), now;
  for (std::byte& byte : shadow) byte = std::byte(random() % 256);
  now = shadow;
  std::vector<std::uint32_t> numbers;
  std::vector<std::byte> values;
  for (std::size_t cell = 0; cell < count; ++cell) {
    if (random() % one_of != 0) continue;
    now[cell * width + random() % width] ^= std::byte(1u << random() % 8);
    numbers.push_back(std::uint32_t(cell));
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
