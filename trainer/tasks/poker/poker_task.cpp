#include "trainer/tasks/poker/poker_task.h"

#include <fmt/format.h>

#include <optional>

#include "base/draws.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kPositionStream = 4;  // after those of PokerTable

/// One episode. Invariant: unless it is over, the policy is to act at table_.
class PokerEnvironment final : public Environment {
 public:
  explicit PokerEnvironment(const PokerOptions& options) : options_(options) {}

  Result<Prompt> reset(std::uint64_t seed) override {
    WC_ASSIGN(table_, PokerTable::make(seed, options_));
    const bool is_drawn = options_.position == PokerPosition::kDrawn;
    policy_ = is_drawn ? static_cast<unsigned>(drawn(seed, kPositionStream, 0) % 2) : 0;
    WC_TRY(let_opponent_act());  // who has the button acts, so the policy does in the second hand at the latest
    const std::span<const ChatMessage> conversation = table_->conversation(policy_);
    return Prompt{
        {conversation.begin(), conversation.end()}, fmt::format("poker/{}", seed), {{"seed", std::to_string(seed)}}};
  }

  Result<StepResult> step(std::string_view answer) override {
    const std::int64_t before = table_->won(policy_);
    WC_TRY(table_->handle_answer(answer));
    WC_TRY(let_opponent_act());
    StepResult result;
    result.reward = static_cast<double>(table_->won(policy_) - before);
    result.success = table_->won(policy_) > 0;
    result.done = table_->is_over();
    if (!result.done) result.observation = table_->conversation(policy_).back().content;
    return result;
  }

 private:
  /// Goes on until the policy is to act, through as many hands as that takes.
  Status let_opponent_act() {
    while (!table_->is_over() && table_->to_act() != policy_) {
      const PokerTurn turn = table_->turn();
      WC_ASSIGN(const std::vector<std::string> answers, options_.opponent->answers(std::span(&turn, 1)));
      WC_TRY(table_->handle_answer(answers.at(0)));
    }
    return {};
  }

  const PokerOptions& options_;
  std::optional<PokerTable> table_;
  unsigned policy_ = 0;  // which player it is
};

class PokerTask final : public Task {
 public:
  explicit PokerTask(PokerOptions options) : options_(std::move(options)) {}

  std::string_view name() const override { return "poker"; }
  /// Errors: the opponent's, here and below.
  Result<Prompt> prompt(std::uint64_t index) const override { return PokerEnvironment(options_).reset(index); }
  /// Plays `response`, a turn per line. Metadata: seed.
  Result<Score> score(const Metadata& metadata, std::string_view response) const override {
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
  std::unique_ptr<Environment> make_environment() const override {
    return std::make_unique<PokerEnvironment>(options_);
  }

 private:
  PokerOptions options_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_poker_task(PokerOptions options) {
  WC_TRY(PokerTable::make(0, options));
  if (options.position == PokerPosition::kDrawn && options.hands < 2) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "poker: a position is drawn for 2 hands at least; in a single one the policy may have no turn");
  }
  return std::unique_ptr<Task>(new PokerTask(std::move(options)));
}

}  // namespace weightcast
