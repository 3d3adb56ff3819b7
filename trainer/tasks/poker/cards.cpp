#include "trainer/tasks/poker/cards.h"

#include <string_view>
#include <utility>

#include "base/random.h"

namespace weightcast {
namespace {

constexpr std::string_view kRanks = "23456789TJQKA";
constexpr std::string_view kSuits = "cdhs";

}  // namespace

std::string to_string(Card card) { return {kRanks[card.rank()], kSuits[card.suit()]}; }

std::string cards_text(std::span<const Card> cards) {
  std::string text = "[";
  for (const Card card : cards) text += (text.size() > 1 ? ", " : "") + to_string(card);
  return text + "]";
}

std::array<Card, kDeckCards> shuffled_deck(std::uint64_t seed) {
  std::array<Card, kDeckCards> deck{};
  for (std::size_t i = 0; i < deck.size(); ++i) deck[i].index = static_cast<std::uint8_t>(i);
  Random random(seed);
  for (std::size_t i = 0; i + 1 < deck.size(); ++i) std::swap(deck[i], deck[i + random.below(deck.size() - i)]);
  return deck;
}

}  // namespace weightcast
