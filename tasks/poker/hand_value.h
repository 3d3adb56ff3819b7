#pragma once

#include <cstdint>
#include <span>

#include "tasks/poker/cards.h"

namespace weightcast {

enum class HandCategory {
  kHighCard,
  kPair,
  kTwoPairs,
  kThreeOfAKind,
  kStraight,
  kFlush,
  kFullHouse,
  kFourOfAKind,
  kStraightFlush,
};

/// How strong the best five of `cards` are, by the rules of high poker: a greater value wins, equal ones share. An ace
/// is also below a two, in a straight. `cards` are 5 to 7, all different.
[[nodiscard]] std::uint32_t hand_value(std::span<const Card> cards);
[[nodiscard]] HandCategory hand_category(std::uint32_t value);

}  // namespace weightcast
