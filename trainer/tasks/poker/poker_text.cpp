#include "trainer/tasks/poker/poker_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "trainer/tasks/answer_text.h"

namespace weightcast {

std::string poker_observation(const HoldemHand& hand, double win_share) {
  const HoldemChoice choice = hand.choice();
  const unsigned player = hand.to_act();
  std::string text =
      fmt::format("Hand: {}, Board: {}, Pot: {}, To call: {}, Stack: {}, Odds: {:.2f}\nYou may: Fold, {}",
                  cards_text(hand.hole(player)), cards_text(hand.board()), hand.pot(), choice.to_call,
                  hand.stacks()[player], win_share, choice.to_call == 0 ? "Check" : "Call");
  if (choice.raise) text += fmt::format(", Raise {} to {}", choice.raise->least, choice.raise->most);
  return text;
}

std::optional<HoldemAction> parse_poker_action(std::string_view answer, const HoldemChoice& choice) {
  constexpr std::string_view kMark = "action:";
  const std::string lower = ascii_lower(answer);
  const std::size_t mark = lower.rfind(kMark);
  if (mark == std::string::npos) return std::nullopt;
  std::string_view rest = std::string_view(lower).substr(mark + kMark.size());
  const auto skip_blanks = [&] { rest.remove_prefix(std::min(rest.find_first_not_of(" \t*["), rest.size())); };
  skip_blanks();
  std::size_t length = 0;
  while (length < rest.size() && (is_ascii_letter(rest[length]) || rest[length] == '-')) ++length;
  const std::string_view word = rest.substr(0, length);
  rest.remove_prefix(length);
  if (word == "fold") return HoldemAction{HoldemAction::Kind::kFold, 0};
  if (word == "check" || word == "call") {
    if ((word == "check") != (choice.to_call == 0)) return std::nullopt;
    return HoldemAction{HoldemAction::Kind::kCheckOrCall, 0};
  }
  if (word == "all-in") {
    if (choice.raise) return HoldemAction{HoldemAction::Kind::kRaise, choice.raise->most};
    return choice.to_call > 0 ? std::optional(HoldemAction{HoldemAction::Kind::kCheckOrCall, 0}) : std::nullopt;
  }
  if ((word != "bet" && word != "raise") || !choice.raise) return std::nullopt;
  skip_blanks();
  if (rest.starts_with("to ")) {
    rest.remove_prefix(3);
    skip_blanks();
  }
  Chips raise_to = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), raise_to);
  if (error != std::errc() || raise_to < choice.raise->least || raise_to > choice.raise->most) return std::nullopt;
  return HoldemAction{HoldemAction::Kind::kRaise, raise_to};
}

std::string poker_action_text(const HoldemAction& action, const HoldemChoice& choice) {
  switch (action.kind) {
    case HoldemAction::Kind::kFold: return "Action: Fold";
    case HoldemAction::Kind::kCheckOrCall: return choice.to_call == 0 ? "Action: Check" : "Action: Call";
    case HoldemAction::Kind::kRaise: break;
  }
  if (choice.raise && action.raise_to == choice.raise->most) return "Action: All-in";
  return fmt::format("Action: Raise {}", action.raise_to);
}

}  // namespace weightcast
