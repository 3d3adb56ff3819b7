#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "tasks/poker/cards.h"
#include "tasks/poker/holdem_hand.h"

namespace weightcast {

/// "Ah Kd" as cards.
inline std::vector<Card> cards_of(std::string_view text) {
  std::vector<Card> cards;
  for (std::size_t i = 0; i + 2 <= text.size(); i += 3) {
    const auto card = parse_card(text.substr(i, 2));
    WC_CHECK(card.has_value());
    cards.push_back(*card);
  }
  return cards;
}

inline constexpr HoldemAction kFold{HoldemAction::Kind::kFold, 0};
inline constexpr HoldemAction kCall{HoldemAction::Kind::kCheckOrCall, 0};
inline HoldemAction raise_to(Chips chips) { return {HoldemAction::Kind::kRaise, chips}; }

}  // namespace weightcast
