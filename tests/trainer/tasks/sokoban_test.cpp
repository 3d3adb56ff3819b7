#include "trainer/tasks/sokoban.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "trainer/tasks/episode.h"
#include "trainer/tasks/sokoban_task.h"

namespace weightcast {
namespace {

using A = SokobanAction;

TEST(Sokoban, PushesMovesAndIsStopped) {
  Sokoban game = *Sokoban::parse(
      "######\n"
      "#@$_.#\n"
      "######\n");
  EXPECT_DOUBLE_EQ(game.step(A::kLeft), -0.1);
  EXPECT_DOUBLE_EQ(game.step(A::kNone), -0.1);
  EXPECT_EQ(game.text(), "######\n#@$_.#\n######\n");
  EXPECT_DOUBLE_EQ(game.step(A::kRight), -0.1);
  EXPECT_EQ(game.text(), "######\n#_@$.#\n######\n");
  EXPECT_DOUBLE_EQ(game.step(A::kRight), -0.1 + 1 + 10);
  EXPECT_EQ(game.text(), "######\n#__@*#\n######\n");
  EXPECT_TRUE(game.solved());
}

TEST(Sokoban, RewardFollowsTheNumberOfBoxesOnTargets) {
  // From target to target the number does not change.
  Sokoban game = *Sokoban::parse("#######\n#@*._$#\n#######\n");
  EXPECT_EQ(game.boxes_on_targets(), 1u);
  EXPECT_DOUBLE_EQ(game.step(A::kRight), -0.1);
  EXPECT_EQ(game.text(), "#######\n#_+*_$#\n#######\n");
  EXPECT_DOUBLE_EQ(game.step(A::kRight), -0.1 - 1);
  EXPECT_EQ(game.boxes_on_targets(), 0u);
  // Two boxes in a row do not move.
  EXPECT_DOUBLE_EQ(game.step(A::kRight), -0.1);
  EXPECT_EQ(game.text(), "#######\n#_.+$$#\n#######\n");
}

TEST(Sokoban, LevelsNeedNoBorder) {
  Sokoban game = *Sokoban::parse("@$.");
  EXPECT_DOUBLE_EQ(game.step(A::kUp), -0.1);
  EXPECT_DOUBLE_EQ(game.step(A::kLeft), -0.1);
  EXPECT_DOUBLE_EQ(game.step(A::kRight), 10.9);
}

TEST(Sokoban, RefusesWhatIsNoLevel) {
  const auto error = [](std::string_view level) {
    const auto game = Sokoban::parse(level);
    return game.has_value() ? std::string("parsed") : game.error().detail;
  };
  EXPECT_EQ(error(""), "sokoban: 0 players; a level has one");
  EXPECT_EQ(error("@@$."), "sokoban: 2 players; a level has one");
  EXPECT_EQ(error("@$"), "sokoban: 1 boxes and 0 targets; a level has as many of both");
  EXPECT_EQ(error("@"), "sokoban: 0 boxes and 0 targets; a level has as many of both");
  EXPECT_EQ(error("@$.\n__x"), "sokoban: row 2, column 3: 'x' is none of # _ . $ * @ +");
  EXPECT_EQ(Sokoban::parse(std::string(65, '#')).error().code, Errc::kTooLarge);
  EXPECT_EQ(Sokoban::parse(std::string(1 << 20, '\n')).error().code, Errc::kTooLarge);
}

TEST(Sokoban, SolverFindsAShortestWay) {
  using Way = std::vector<A>;
  EXPECT_EQ(Sokoban::parse("@$_.")->solve(100), (Way{A::kRight, A::kRight}));
  EXPECT_EQ(Sokoban::parse("*@")->solve(100), Way{});
  EXPECT_EQ(Sokoban::parse("####\n#@_#\n#$_#\n#_.#\n####")->solve(1000), std::nullopt);
  EXPECT_EQ(Sokoban::parse("@$_.")->solve(1), std::nullopt) << "more states than it may look at";
  EXPECT_EQ(Sokoban::parse("_____\n._$@_\n_____")->solve(10000), (Way{A::kLeft, A::kLeft}));
  // Around the box, then push it back: 4 moves and two pushes.
  Sokoban game = *Sokoban::parse("_____\n.@$__\n_____");
  const auto way = game.solve(10000);
  ASSERT_TRUE(way.has_value());
  EXPECT_EQ(way->size(), 6u);
  for (const A move : *way) game.step(move);
  EXPECT_TRUE(game.solved());
}

TEST(Sokoban, ReadsTheRealLevels) {
  std::ifstream file(WEIGHTCAST_TASKS_DATA "/boxoban_10.txt");
  std::string line, level;
  int levels = 0;
  while (std::getline(file, line)) {
    if (line.starts_with("#") && line.find_first_not_of("# .$@*+") == std::string::npos) level += line + '\n';
    if (!line.empty() || level.empty()) continue;
    const auto game = Sokoban::parse(level);
    ASSERT_TRUE(game.has_value()) << game.error().message();
    EXPECT_EQ(game->boxes(), 4u);
    std::replace(level.begin(), level.end(), ' ', '_');
    EXPECT_EQ(game->text(), level);
    level.clear();
    ++levels;
  }
  EXPECT_EQ(levels, 10);
}

TEST(Sokoban, GeneratedLevelsCanBeSolved) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto level = make_sokoban_level(seed, {});
    ASSERT_TRUE(level.has_value());
    const auto way = level->solve(kSokobanStatesMax);
    ASSERT_TRUE(way.has_value());
    EXPECT_GE(way->size(), 4u);
    EXPECT_EQ(level->boxes(), 2u);
    EXPECT_EQ(level->text().size(), 42u);
    EXPECT_EQ(level->text(), make_sokoban_level(seed, {})->text());
    seen.insert(level->text());
  }
  EXPECT_EQ(seen.size(), 60u);
}

TEST(SokobanTask, ReadsDirectionsAsModelsWriteThem) {
  EXPECT_EQ(parse_sokoban_actions("<answer>Up || LEFT</answer>"), (std::vector{A::kUp, A::kLeft}));
  EXPECT_EQ(parse_sokoban_actions("I go up. <answer>down, right</answer> left"), (std::vector{A::kDown, A::kRight}));
  EXPECT_EQ(parse_sokoban_actions("<answer>right"), (std::vector{A::kRight}));
  EXPECT_EQ(parse_sokoban_actions("upper leftover"), std::vector<A>{});
  EXPECT_EQ(parse_sokoban_actions("<answer></answer>"), std::vector<A>{});
}

TEST(SokobanTask, PlaysTurnByTurn) {
  const auto task = *make_sokoban_task({.level = {}, .rewards = {}, .steps_max = 6});
  Episode episode([&] { return task->make_environment(); }, {});
  const auto prompt = episode.begin(Instant(), 3);
  ASSERT_TRUE(prompt.has_value());
  EXPECT_NE(prompt->messages[0].content.find(prompt->metadata.at("level")), std::string::npos);
  // Nonsense costs one step, of seven directions five count.
  EXPECT_NE(episode.step(Instant(), "hmm", 1)->find("#"), std::string::npos);
  EXPECT_DOUBLE_EQ(episode.turn_rewards()[0], -0.1);
  ASSERT_TRUE(episode.step(Instant(), "up up up up up up up", 1).has_value());
  EXPECT_EQ(episode.end(), EpisodeEnd::kDone) << "six steps are the limit";
  EXPECT_EQ(episode.turn_rewards().size(), 2u);
}

TEST(SokobanTask, ItsSolutionIsTheFirstTurnOfAShortestWay) {
  const auto task = *make_sokoban_task({.level = {}, .rewards = {}, .actions_per_turn_max = 3});
  EXPECT_EQ(task->solution({{"level", "@$_.\n"}}), "<answer>Right || Right</answer>");
  EXPECT_EQ(task->solution({{"level", "@$____.\n"}}), "<answer>Right || Right || Right</answer>");
  EXPECT_EQ(task->solution({{"level", "@"}}), std::nullopt);
  EXPECT_EQ(task->solution({{"level", "@_$.\n#_##\n$_#.\n"}}), std::nullopt) << "there is no way";
  const auto whole = *make_sokoban_task({.level = {}, .rewards = {}, .actions_per_turn_max = 120});
  for (std::uint64_t index = 0; index < 20; ++index) {
    const Prompt prompt = *whole->prompt(index);
    EXPECT_TRUE(whole->score(prompt.metadata, whole->solution(prompt.metadata).value())->success) << index;
  }
}

TEST(SokobanTask, ScorePlaysAllTurns) {
  const auto task = *make_sokoban_task({});
  const Metadata metadata{{"level", "@$_.\n"}};
  EXPECT_DOUBLE_EQ(task->score(metadata, "right\nright\nright")->reward, -0.1 + 10.9);
  EXPECT_DOUBLE_EQ(task->score(metadata, "right right")->reward, -0.1 + 10.9);
  EXPECT_DOUBLE_EQ(task->score(metadata, "\nleft")->reward, -0.2);
  EXPECT_FALSE(task->score({{"level", "@"}}, "up").has_value());
}

/// One box of two on its target pays a reward, and is not what the prompt asks for.
TEST(SokobanTask, SucceedsWithEveryBoxOnATarget) {
  const auto task = *make_sokoban_task({});
  const Metadata metadata{{"level", "@$.\n_$.\n"}};
  const Score half = *task->score(metadata, "right"), whole = *task->score(metadata, "right\nleft\ndown\nright");
  EXPECT_GT(half.reward, 0);
  EXPECT_FALSE(half.success);
  EXPECT_TRUE(whole.success);

  const auto environment = task->make_environment();
  ASSERT_TRUE(environment->reset(0).has_value());
  EXPECT_FALSE(environment->step("hmm")->success);
}

}  // namespace
}  // namespace weightcast
