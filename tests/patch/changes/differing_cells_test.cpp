#include "patch/changes/differing_cells.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

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

}  // namespace
}  // namespace weightcast
