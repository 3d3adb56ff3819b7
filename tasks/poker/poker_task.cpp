#include "tasks/poker/poker_task.h"

#include <fmt/format.h>

#include <optional>

#include "base/draws.h"
#include "base/text.h"
#include "tasks/poker/poker_text.h"
#include "tasks/poker/win_share.h"

namespace weightcast {
namespace {

constexpr unsigned kPolicy = 0;
constexpr unsigned kWinShareSamples = 200;  // within 0.04 of the truth
constexpr std::uint32_t kHandsMax = 1000;
constexpr std::uint64_t kDeckStream = 1;

constexpr std::string_view kPokerRules =
    "You play no-limit Texas hold'em against one player. Blinds are 1 and 2, and both begin each hand with 100 chips. "
    "Odds are your chance to win against unknown cards. Answer with one action, such as \"Action: Call\" or \"Action: "
    "Raise 50\"; 50 is then your whole bet of this round. What is not allowed counts as a check, or else a fold.\n";

/// One episode. Invariant: unless it is over, the policy is to act in hand_.
class PokerEnvironment final : public Environment {
 public:
  explicit PokerEnvironment(const PokerOptions& options) : options_(options) {}

  Result<Prompt> reset(std::uint64_t seed) override {
    seed_ = seed;
    hands_ = refused_ = 0;
    won_ = 0;
    WC_TRY(deal());  // the policy has the button in the first hand, and acts
    return Prompt{{{"user", std::string(kPokerRules) + observation()}},
                  fmt::format("poker/{}", seed),
                  {{"seed", std::to_string(seed)}}};
  }

  Result<StepResult> step(std::string_view answer) override {
    const HoldemChoice choice = hand_->choice();
    std::optional<HoldemAction> action = parse_poker_action(answer, choice);
    const bool is_refused = !action.has_value();
    refused_ += is_refused ? 1 : 0;
    if (is_refused) {
      action = {choice.to_call == 0 ? HoldemAction::Kind::kCheckOrCall : HoldemAction::Kind::kFold, 0};
    }
    WC_TRY(hand_->act(*action));
    std::int64_t won = 0;
    WC_TRY(let_opponent_act(won));
    won_ += won;
    StepResult result;
    result.reward = static_cast<double>(won);
    result.success = won_ > 0;
    result.done = hands_ > options_.hands;
    if (result.done) return result;
    if (is_refused) {
      result.observation = fmt::format("That was no action that is allowed ({} so far): it counted as a {}.\n",
                                       refused_, action->kind == HoldemAction::Kind::kFold ? "fold" : "check");
    }
    result.observation += observation();
    return result;
  }

 private:
  Status deal() {
    const std::array<Card, kDeckCards> deck = shuffled_deck(drawn(seed_, kDeckStream, hands_));
    HoldemStakes stakes;
    stakes.button = hands_ % 2;
    WC_ASSIGN(hand_, HoldemHand::deal(std::span(deck).first<9>(), stakes));
    ++hands_;
    return {};
  }

  /// Goes on until the policy is to act, through as many hands as that takes, and adds up what it wins in them.
  Status let_opponent_act(std::int64_t& won) {
    for (;;) {
      if (hand_->is_over()) {
        won += static_cast<std::int64_t>(hand_->stacks()[kPolicy]) -
               static_cast<std::int64_t>(hand_->stakes().stacks[kPolicy]);
        if (hands_ == options_.hands) {
          ++hands_;
          return {};
        }
        WC_TRY(deal());
      }
      if (hand_->to_act() == kPolicy) return {};
      WC_TRY(hand_->act(rule_action(options_.opponent, hand_->choice(), hand_->pot(), odds())));
    }
  }

  [[nodiscard]] double odds() const {
    return win_share(hand_->hole(hand_->to_act()), hand_->board(), kWinShareSamples);
  }
  [[nodiscard]] std::string observation() const { return poker_observation(*hand_, odds()); }

  const PokerOptions& options_;
  std::uint64_t seed_ = 0;
  std::optional<HoldemHand> hand_;
  std::uint32_t hands_ = 0;    // that have been dealt; one more when the last is over
  std::uint32_t refused_ = 0;  // answers
  std::int64_t won_ = 0;
};

}  // namespace

Result<std::unique_ptr<Task>> PokerTask::make(const PokerOptions& options) {
  if (options.hands == 0 || options.hands > kHandsMax) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("poker: hands are {}; they are 1 to {}", options.hands, kHandsMax));
  }
  return std::unique_ptr<Task>(new PokerTask(options));
}

Result<Prompt> PokerTask::prompt(std::uint64_t index) const { return PokerEnvironment(options_).reset(index); }

Result<Score> PokerTask::score(const Metadata& metadata, std::string_view response) const {
  WC_ASSIGN(const std::string text, metadata_value(metadata, "seed"));
  const auto seed = parse_number<std::uint64_t>(text);
  if (!seed) {
    return fail(Errc::kInvalidArgument, Op::kVerify,
                fmt::format("poker: the seed '{}' is none", printable(cut_text(text, 40))));
  }
  PokerEnvironment environment(options_);
  WC_TRY(environment.reset(*seed));
  return score_lines(environment, response);
}

std::unique_ptr<Environment> PokerTask::make_environment() const {
  return std::make_unique<PokerEnvironment>(options_);
}

}  // namespace weightcast
