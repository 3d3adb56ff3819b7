#include "trainer/tasks/sokoban_task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "trainer/tasks/answer_text.h"

namespace weightcast {
namespace {

std::string ask(const Sokoban& game, std::uint32_t actions_max) {
  return fmt::format("{}Answer with up to {} actions (Up, Down, Left, Right), for example: <answer>Up || Left</answer>",
                     game.text(), actions_max);
}

constexpr std::string_view kRules =
    "You play Sokoban. Push every box onto a target. You can push a box, but not pull it, and only if the cell behind "
    "it "
    "is free. # is a wall, _ floor, . a target, $ a box, * a box on a target, @ you, + you on a target.\n";

/// One episode. Invariant: steps_ <= options.steps_max.
class SokobanEnvironment final : public Environment {
 public:
  SokobanEnvironment(const Task& task, const SokobanOptions& options) : task_(task), options_(options) {}

  Result<Prompt> reset(std::uint64_t seed) override {
    WC_ASSIGN(Prompt prompt, task_.prompt(seed));
    WC_TRY(begin(prompt.metadata));
    return prompt;
  }

  Status begin(const Metadata& metadata) {
    WC_ASSIGN(const std::string level, metadata_value(metadata, "level"));
    WC_ASSIGN(Sokoban game, Sokoban::parse(level));
    game_ = std::move(game);
    steps_ = 0;
    return {};
  }

  Result<StepResult> step(std::string_view action) override {
    std::vector<SokobanAction> actions = parse_sokoban_actions(action);
    if (actions.empty()) actions = {SokobanAction::kNone};
    if (actions.size() > options_.actions_per_turn_max) actions.resize(options_.actions_per_turn_max);
    StepResult result;
    for (const SokobanAction one : actions) {
      result.reward += game_->step(one, options_.rewards);
      ++steps_;
      result.success = game_->solved();
      result.done = result.success || steps_ >= options_.steps_max;
      if (result.done) return result;
    }
    result.observation = ask(*game_, options_.actions_per_turn_max);
    return result;
  }

 private:
  const Task& task_;
  const SokobanOptions& options_;
  std::optional<Sokoban> game_;
  std::uint32_t steps_ = 0;
};

class SokobanTask final : public Task {
 public:
  explicit SokobanTask(SokobanOptions options) : options_(options) {}

  std::string_view name() const override { return "sokoban"; }
  Result<Prompt> prompt(std::uint64_t index) const override {
    WC_ASSIGN(const Sokoban game, make_sokoban_level(index, options_.level));
    return Prompt{{{"user", std::string(kRules) + ask(game, options_.actions_per_turn_max)}},
                  fmt::format("sokoban/{}", index),
                  {{"level", game.text()}}};
  }
  /// Plays `response`, a turn per line, in the level that the metadata give: the sum of its rewards. Metadata: level.
  Result<Score> score(const Metadata& metadata, std::string_view response) const override {
    SokobanEnvironment environment(*this, options_);
    WC_TRY(environment.begin(metadata));
    return score_lines(environment, response);
  }
  /// The first turn of a shortest way. Absent for metadata without a level that can be solved.
  std::optional<std::string> solution(const Metadata& metadata) const override {
    const auto level = metadata.find("level");
    if (level == metadata.end()) return std::nullopt;
    const Result<Sokoban> game = Sokoban::parse(level->second);
    if (!game.has_value()) return std::nullopt;
    const auto way = game->solve(kSokobanStatesMax);
    if (!way) return std::nullopt;
    constexpr std::array kWords{"", "Up", "Down", "Left", "Right"};  // in the order of SokobanAction
    std::vector<std::string_view> words;
    for (const SokobanAction move :
         std::span(*way).first(std::min<std::size_t>(way->size(), options_.actions_per_turn_max))) {
      words.push_back(kWords[static_cast<std::size_t>(move)]);
    }
    return fmt::format("<answer>{}</answer>", fmt::join(words, " || "));
  }
  std::unique_ptr<Environment> make_environment() const override {
    return std::make_unique<SokobanEnvironment>(*this, options_);
  }

 private:
  SokobanOptions options_;
};

}  // namespace

std::vector<SokobanAction> parse_sokoban_actions(std::string_view answer) {
  answer = last_answer(answer);
  constexpr std::array<std::pair<std::string_view, SokobanAction>, 4> kWords{{{"up", SokobanAction::kUp},
                                                                              {"down", SokobanAction::kDown},
                                                                              {"left", SokobanAction::kLeft},
                                                                              {"right", SokobanAction::kRight}}};
  std::vector<SokobanAction> actions;
  std::string word;
  for (std::size_t i = 0; i <= answer.size(); ++i) {
    if (i < answer.size() && is_ascii_letter(answer[i])) {
      word += static_cast<char>(answer[i] | 0x20);
      continue;
    }
    for (const auto& [name, action] : kWords) {
      if (word == name) actions.push_back(action);
    }
    word.clear();
  }
  return actions;
}

Result<std::unique_ptr<Task>> make_sokoban_task(const SokobanOptions& options) {
  if (options.actions_per_turn_max == 0 || options.steps_max == 0) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "sokoban: actions_per_turn and steps_max are at least 1");
  }
  WC_TRY(make_sokoban_level(0, options.level));
  return std::unique_ptr<Task>(new SokobanTask(options));
}

}  // namespace weightcast
