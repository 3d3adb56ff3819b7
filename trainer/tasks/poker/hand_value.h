#pragma once

#include <cstdint>
#include <span>

#include "trainer/tasks/poker/cards.h"

namespace weightcast {

/// How strong the best five of `cards` are, by the rules of high poker: a greater value wins, equal ones share. An ace
/// is also below a two, in a straight. Bits 20 and up are the category: 0 is a high card, 8 a straight flush. `cards`
/// are 5 to 7, all different.
[[nodiscard]] std::uint32_t hand_value(std::span<const Card> cards);

}  // namespace weightcast
