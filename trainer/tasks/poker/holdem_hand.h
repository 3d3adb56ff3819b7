#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "trainer/tasks/poker/cards.h"

namespace weightcast {

using Chips = std::uint64_t;

struct HoldemStakes {
  Chips small_blind = 1;
  Chips big_blind = 2;
  std::array<Chips, 2> stacks{100, 100};  ///< at the beginning, at least a big blind each
  unsigned button = 0;                    ///< the player who posts the small blind, and acts last after the flop
};

struct HoldemAction {
  enum class Kind { kFold, kCheckOrCall, kRaise };
  Kind kind = Kind::kCheckOrCall;
  Chips raise_to = 0;  ///< the whole bet of this round, of a raise or a first bet

  bool operator==(const HoldemAction&) const = default;
};

/// What the player who acts may do. Folding is always possible.
struct HoldemChoice {
  Chips to_call = 0;  ///< 0: a check
  struct Raise {
    Chips least = 0, most = 0;  ///< the whole bet of this round; the most puts all chips in
  };
  std::optional<Raise> raise;  ///< absent if no chips are left for one, or the other player has none
};

/// One hand of no-limit Texas hold'em between two players, 0 and 1. Pure. Invariant: stacks, bets and pot together are
/// the stacks of the beginning. A raise is at least as large as the one before it, or a big blind; one for all chips
/// may be smaller. What the other player cannot match goes back: that is the side pot of two.
class HoldemHand {
 public:
  /// `cards`: two of player 0, two of player 1, and the board's five. Errors: kInvalidArgument for a stack below a big
  /// blind or above 2^32, for blinds out of order, and for a card that is none or stands twice.
  [[nodiscard]] static Result<HoldemHand> deal(std::span<const Card, 9> cards, const HoldemStakes& stakes);

  [[nodiscard]] bool is_over() const { return is_over_; }
  /// Who acts, and what that player may do. Only while the hand goes on.
  [[nodiscard]] unsigned to_act() const { return to_act_; }
  [[nodiscard]] HoldemChoice choice() const;
  /// Errors: kInvalidArgument for a raise that choice() does not allow, or if the hand is over; nothing has changed
  /// then.
  [[nodiscard]] Status act(const HoldemAction& action);

  [[nodiscard]] std::span<const Card> hole(unsigned player) const { return std::span(cards_).subspan(2 * player, 2); }
  /// The cards that lie open: none, three, four or five.
  [[nodiscard]] std::span<const Card> board() const { return std::span(cards_).subspan(4, board_cards_); }
  /// All that is bet and not won yet.
  [[nodiscard]] Chips pot() const { return pot_ + bets_[0] + bets_[1]; }
  [[nodiscard]] const std::array<Chips, 2>& stacks() const { return stacks_; }
  [[nodiscard]] const HoldemStakes& stakes() const { return stakes_; }

 private:
  explicit HoldemHand(const HoldemStakes& stakes) : stakes_(stakes) {}

  void bet(unsigned player, Chips chips);
  [[nodiscard]] bool is_round_over() const;
  void end_round();
  void show_down();
  void win(unsigned player);

  HoldemStakes stakes_;
  std::array<Card, 9> cards_{};
  std::array<Chips, 2> stacks_{};
  std::array<Chips, 2> bets_{};      // of this round
  Chips pot_ = 0;                    // of the rounds before
  Chips last_raise_ = 0;             // by how much the bet was raised last, in this round
  std::array<bool, 2> has_acted_{};  // since the last raise
  unsigned to_act_ = 0;
  std::size_t board_cards_ = 0;
  bool is_over_ = false;
};

}  // namespace weightcast
