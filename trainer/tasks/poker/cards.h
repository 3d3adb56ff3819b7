#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>

namespace weightcast {

/// A playing card. Cards are in the order 2c 2d 2h 2s 3c ... As.
struct Card {
  std::uint8_t index = 0;  ///< 0 to 51

  [[nodiscard]] unsigned rank() const { return index / 4u; }  ///< 0: a two, 12: an ace
  [[nodiscard]] unsigned suit() const { return index % 4u; }  ///< clubs, diamonds, hearts, spades
  auto operator<=>(const Card&) const = default;
};

inline constexpr std::size_t kDeckCards = 52;

/// "Ah"
[[nodiscard]] std::string to_string(Card card);
/// "[Ah, Kd]"
[[nodiscard]] std::string cards_text(std::span<const Card> cards);

/// All cards, in an order that follows from `seed`.
[[nodiscard]] std::array<Card, kDeckCards> shuffled_deck(std::uint64_t seed);

}  // namespace weightcast
