#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "trainer/tasks/poker/cards.h"
#include "trainer/tasks/poker/holdem_hand.h"

namespace weightcast {

/// "Ah Kd" as cards.
inline std::vector<Card> cards_of(std::string_view text) {
  std::vector<Card> cards;
  for (std::size_t i = 0; i + 2 <= text.size(); i += 3) {
    const std::size_t rank = std::string_view("23456789TJQKA").find(text[i]);
    const std::size_t suit = std::string_view("cdhs").find(text[i + 1]);
    WC_CHECK(rank != std::string_view::npos && suit != std::string_view::npos);
    cards.push_back({static_cast<std::uint8_t>(rank * 4 + suit)});
  }
  return cards;
}

inline constexpr HoldemAction kFold{HoldemAction::Kind::kFold, 0};
inline constexpr HoldemAction kCall{HoldemAction::Kind::kCheckOrCall, 0};
inline HoldemAction raise_to(Chips chips) { return {HoldemAction::Kind::kRaise, chips}; }

}  // namespace weightcast
