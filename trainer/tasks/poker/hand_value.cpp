#include "trainer/tasks/poker/hand_value.h"

#include <array>
#include <bit>
#include <optional>

#include "base/result.h"

namespace weightcast {
namespace {

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

constexpr unsigned kRankCount = 13;
constexpr unsigned kAce = 12;
constexpr unsigned kKickers = 5;  // four bits each, below the category

unsigned highest(unsigned ranks) { return static_cast<unsigned>(std::bit_width(ranks)) - 1; }

/// The highest card of a straight among `ranks`, a bit each.
std::optional<unsigned> straight(unsigned ranks) {
  for (unsigned high = kAce; high >= 4; --high) {
    if ((ranks >> (high - 4) & 31u) == 31u) return high;
  }
  constexpr unsigned kWheel = 1u << kAce | 15u;
  return (ranks & kWheel) == kWheel ? std::optional(3u) : std::nullopt;
}

/// A value under construction: what decides first is added first.
class Value {
 public:
  explicit Value(HandCategory category) : value_(static_cast<std::uint32_t>(category)) {}

  Value& add(unsigned rank) {
    value_ = value_ << 4 | rank;
    ++kickers_;
    return *this;
  }
  /// The `count` highest of `ranks`.
  Value& add_highest(unsigned ranks, unsigned count) {
    for (; count > 0; --count) {
      add(highest(ranks));
      ranks &= ~(1u << highest(ranks));
    }
    return *this;
  }
  [[nodiscard]] std::uint32_t get() const { return value_ << 4 * (kKickers - kickers_); }

 private:
  std::uint32_t value_;
  unsigned kickers_ = 0;
};

}  // namespace

std::uint32_t hand_value(std::span<const Card> cards) {
  WC_CHECK(cards.size() >= 5 && cards.size() <= 7);
  std::array<unsigned, 4> suits{};  // ranks of each, a bit each
  std::array<unsigned, kRankCount> counts{};
  for (const Card card : cards) {
    suits[card.suit()] |= 1u << card.rank();
    ++counts[card.rank()];
  }
  const unsigned all = suits[0] | suits[1] | suits[2] | suits[3];
  unsigned flush = 0;
  for (const unsigned ranks : suits) {
    if (std::popcount(ranks) >= 5) flush = ranks;
  }
  if (const auto high = straight(flush)) return Value(HandCategory::kStraightFlush).add(*high).get();
  unsigned pairs = 0, threes = 0, fours = 0;  // ranks that stand so often, at least
  for (unsigned rank = 0; rank < kRankCount; ++rank) {
    if (counts[rank] >= 2) pairs |= 1u << rank;
    if (counts[rank] >= 3) threes |= 1u << rank;
    if (counts[rank] == 4) fours |= 1u << rank;
  }
  if (fours != 0) return Value(HandCategory::kFourOfAKind).add(highest(fours)).add_highest(all & ~fours, 1).get();
  const unsigned three = threes != 0 ? 1u << highest(threes) : 0;
  if (three != 0 && (pairs & ~three) != 0) {
    return Value(HandCategory::kFullHouse).add(highest(three)).add_highest(pairs & ~three, 1).get();
  }
  if (flush != 0) return Value(HandCategory::kFlush).add_highest(flush, 5).get();
  if (const auto high = straight(all)) return Value(HandCategory::kStraight).add(*high).get();
  if (three != 0) return Value(HandCategory::kThreeOfAKind).add(highest(three)).add_highest(all & ~three, 2).get();
  if (std::popcount(pairs) >= 2) {
    const unsigned first = 1u << highest(pairs), second = 1u << highest(pairs & ~first);
    return Value(HandCategory::kTwoPairs).add_highest(first | second, 2).add_highest(all & ~(first | second), 1).get();
  }
  if (pairs != 0) return Value(HandCategory::kPair).add(highest(pairs)).add_highest(all & ~pairs, 3).get();
  return Value(HandCategory::kHighCard).add_highest(all, 5).get();
}

}  // namespace weightcast
