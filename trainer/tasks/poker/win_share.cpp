#include "trainer/tasks/poker/win_share.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/draws.h"
#include "base/random.h"
#include "base/result.h"
#include "trainer/tasks/poker/hand_value.h"

namespace weightcast {

double win_share(std::span<const Card> hole, std::span<const Card> board, unsigned samples) {
  WC_CHECK(hole.size() == 2 && board.size() <= 5 && samples > 0);
  std::vector<Card> rest;
  std::uint64_t known = 0;
  for (const auto cards : {hole, board}) {
    for (const Card card : cards) known |= std::uint64_t{1} << card.index;
  }
  for (std::uint8_t i = 0; i < kDeckCards; ++i) {
    if ((known >> i & 1) == 0) rest.push_back({i});
  }
  Random random(drawn(known, 0, board.size()));
  const std::size_t missing = 5 - board.size();
  double won = 0;
  for (unsigned sample = 0; sample < samples; ++sample) {
    for (std::size_t i = 0; i < missing + 2; ++i) std::swap(rest[i], rest[i + random.below(rest.size() - i)]);
    std::array<Card, 7> mine{}, theirs{};
    std::ranges::copy(hole, mine.begin());
    std::copy_n(rest.begin() + static_cast<std::ptrdiff_t>(missing), 2, theirs.begin());
    for (std::array<Card, 7>* const cards : {&mine, &theirs}) {
      std::ranges::copy(board, cards->begin() + 2);
      std::copy_n(rest.begin(), missing, cards->begin() + 2 + static_cast<std::ptrdiff_t>(board.size()));
    }
    const std::uint32_t my_value = hand_value(mine), their_value = hand_value(theirs);
    won += my_value > their_value ? 1 : my_value == their_value ? 0.5 : 0;
  }
  return won / samples;
}

}  // namespace weightcast
