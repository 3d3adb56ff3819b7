#include "trainer/tasks/poker/hand_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "tests/trainer/tasks/poker/poker_cards.h"
#include "trainer/tasks/poker/win_share.h"

namespace weightcast {
namespace {

std::uint32_t value(std::string_view text) { return hand_value(cards_of(text)); }

TEST(Cards, HaveTexts) {
  for (std::uint8_t i = 0; i < kDeckCards; ++i) EXPECT_EQ(cards_of(to_string(Card{i})), std::vector{Card{i}});
  EXPECT_EQ(to_string(Card{0}), "2c");
  EXPECT_EQ(to_string(Card{51}), "As");
  EXPECT_EQ(cards_text(cards_of("Qs Th 2c")), "[Qs, Th, 2c]");
  EXPECT_EQ(cards_text({}), "[]");
}

TEST(Cards, AShuffledDeckHasEachCardOnce) {
  const auto deck = shuffled_deck(3);
  EXPECT_EQ(std::set<Card>(deck.begin(), deck.end()).size(), kDeckCards);
  EXPECT_EQ(deck, shuffled_deck(3));
  EXPECT_NE(deck, shuffled_deck(4));
}

TEST(HandValue, OrdersTheCategoriesAndWhatIsWithinThem) {
  const std::vector<std::string_view> order{
      "7c 5d 4h 3s 2c", "Ac Kd Qh Js 9c", "2c 2d 5h 4s 3c", "2c 2d Ah 4s 3c", "Ac Ad 4h 3s 2c", "3c 3d 2h 2s 4c",
      "3c 3d 2h 2s Ac", "Ac Ad 2h 2s 3c", "Ac Ad Kh Ks Qc", "2c 2d 2h 4s 3c", "Ac Ad Ah Ks Qc", "Ac 2d 3h 4s 5c",
      "2d 3h 4s 5c 6c", "Tc Jd Qh Ks Ac", "2c 3c 4c 5c 7c", "Ac Kc Qc Jc 9c", "2c 2d 2h 3s 3c", "2c 2d 2h As Ac",
      "Ac Ad Ah Ks Kc", "2c 2d 2h 2s 3c", "Ac Ad Ah As Kc", "Ac 2c 3c 4c 5c", "2c 3c 4c 5c 6c", "Tc Jc Qc Kc Ac"};
  for (std::size_t i = 1; i < order.size(); ++i) EXPECT_LT(value(order[i - 1]), value(order[i])) << order[i];
  EXPECT_EQ(value("Ac Kd Qh Js 9c"), value("Ad Kh Qs Jc 9d"));
}

TEST(HandValue, TakesTheBestFiveOfSeven) {
  EXPECT_EQ(value("Ac Kd Qh Js 9c 3d 2h"), value("Ac Kd Qh Js 9c"));
  EXPECT_EQ(value("Ac Ad Kh Ks Qc Qd Jh"), value("Ac Ad Kh Ks Qc"));
  EXPECT_EQ(value("Ac Ad Ah Ks Kc Kd 2h"), value("Ac Ad Ah Ks Kc"));
  EXPECT_EQ(value("2c 2d 2h 2s Kc Kd Kh"), value("2c 2d 2h 2s Kc"));
  EXPECT_EQ(value("2c 3c 4c 6c 7c 9c Ac"), value("Ac 9c 7c 6c 4c"));
  EXPECT_EQ(value("2c 3c 4c 5c 7c 9c Ac"), value("5c 4c 3c 2c Ac"));
  EXPECT_EQ(value("2c 3d 4h 5s 6c 7d Ah"), value("7d 6c 5s 4h 3d"));
  EXPECT_EQ(value("5h 6h 7h 8h 9h Ah Th"), value("6h 7h 8h 9h Th"));
}

/// Counts of all hands of five cards: the known ones, such as 40 straight flushes; and 7,462 that differ in strength.
TEST(HandValue, AllHandsOfFiveCardsHaveTheKnownFrequencies) {
  std::array<unsigned, 9> counts{};
  std::set<std::uint32_t> values;
  std::array<Card, 5> hand{};
  const auto each = [&](auto&& self, std::size_t depth, std::uint8_t from) -> void {
    if (depth == hand.size()) {
      const std::uint32_t strength = hand_value(hand);
      ++counts.at(strength >> 20);
      values.insert(strength);
      return;
    }
    for (std::uint8_t card = from; card < kDeckCards; ++card) {
      hand[depth] = {card};
      self(self, depth + 1, static_cast<std::uint8_t>(card + 1));
    }
  };
  each(each, 0, 0);
  EXPECT_THAT(counts, testing::ElementsAre(1302540, 1098240, 123552, 54912, 10200, 5108, 3744, 624, 40));
  EXPECT_EQ(values.size(), 7462u);
}

TEST(WinShare, IsWhatIsKnownOfSomeHands) {
  // Against a random hand, by full enumeration elsewhere: aces 0.852, seven and two of two suits 0.346.
  EXPECT_NEAR(win_share(cards_of("Ah Ad"), {}, 4000), 0.852, 0.02);
  EXPECT_NEAR(win_share(cards_of("7h 2d"), {}, 4000), 0.346, 0.03);
  // Nothing beats a royal flush, and all share one that lies on the board.
  EXPECT_EQ(win_share(cards_of("Ah Kh"), cards_of("Qh Jh Th 2c 3d"), 500), 1);
  EXPECT_EQ(win_share(cards_of("2c 3d"), cards_of("Ah Kh Qh Jh Th"), 500), 0.5);
  EXPECT_EQ(win_share(cards_of("7h 2d"), cards_of("Ah Kh 3c"), 50),
            win_share(cards_of("7h 2d"), cards_of("Ah Kh 3c"), 50));
}

}  // namespace
}  // namespace weightcast
