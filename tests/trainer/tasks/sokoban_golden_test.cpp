// What gym-sokoban makes of the same actions: tests/oracles/gym_sokoban_steps.py.
#include <gtest/gtest.h>

#include "tests/golden_lines.h"
#include "trainer/tasks/sokoban.h"

namespace weightcast {
namespace {

TEST(SokobanGolden, StepsAreThoseOfGymSokoban) {
  std::size_t solved = 0;
  for (const auto& line : golden_lines(WEIGHTCAST_TASKS_GOLDEN "/gym_sokoban_steps.jsonl")) {
    auto game = Sokoban::parse(line["level"].get<std::string>());
    ASSERT_TRUE(game.has_value());
    for (const auto& step : line["steps"]) {
      const double reward = game->step(static_cast<SokobanAction>(step["action"].get<int>()));
      ASSERT_DOUBLE_EQ(reward, step["reward"].get<double>()) << game->text();
      ASSERT_EQ(game->text(), step["text"].get<std::string>());
      ASSERT_EQ(game->solved(), step["done"].get<bool>());
    }
    solved += game->solved() ? 1 : 0;
  }
  EXPECT_GT(solved, 2u);
}

}  // namespace
}  // namespace weightcast
