#include "trainer/tasks/knights_and_knaves.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

namespace weightcast {
namespace {

using Kind = Statement::Kind;

TEST(KnightsAndKnaves, StatementsHoldAsInLogic) {
  const Statement a{Kind::kKnight, 0, {}}, b{Kind::kKnave, 1, {}};
  const std::map<Kind, unsigned> truth{
      {Kind::kAnd, 0b0010}, {Kind::kOr, 0b1011}, {Kind::kImplies, 0b0111}, {Kind::kIff, 0b0110}};
  for (const auto& [kind, table] : truth) {
    const Statement statement{kind, 0, {a, b}};
    for (unsigned knights = 0; knights < 4; ++knights) {
      EXPECT_EQ(statement.holds(knights), (table >> knights & 1) == 1) << static_cast<int>(kind) << knights;
    }
  }
}

/// Smullyan's first puzzles, whose solutions stand in his book.
TEST(KnightsAndKnaves, SolvesKnownPuzzles) {
  // "At least one of us is a knave."
  const Statement one_knave{Kind::kOr, 0, {{Kind::kKnave, 0, {}}, {Kind::kKnave, 1, {}}}};
  // B says nothing that binds: "I am a knight."
  const Statement binds_nothing{Kind::kKnight, 1, {}};
  EXPECT_EQ(solve({{"A", "B"}, {one_knave, binds_nothing}}), (std::vector<unsigned>{0b01}));
  // "I am a knave, or B is a knight."
  const Statement or_b{Kind::kOr, 0, {{Kind::kKnave, 0, {}}, {Kind::kKnight, 1, {}}}};
  EXPECT_EQ(solve({{"A", "B"}, {or_b, binds_nothing}}), (std::vector<unsigned>{0b11}));
  // "I am a knave": nobody can say it.
  EXPECT_TRUE(solve({{"A", "B"}, {{Kind::kKnave, 0, {}}, binds_nothing}}).empty());
  EXPECT_EQ(solve({{"A", "B"}, {{Kind::kKnight, 0, {}}, binds_nothing}}).size(), 4u);
}

TEST(KnightsAndKnaves, EveryPuzzleHasOneSolution) {
  std::map<unsigned, int> knights_in_all;
  for (unsigned people = kKnightsPeopleMin; people <= kKnightsPeopleMax; ++people) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      const KnightsPuzzle puzzle = make_knights_puzzle(seed, people);
      ASSERT_EQ(puzzle.names.size(), people);
      const auto solutions = solve(puzzle);
      ASSERT_EQ(solutions.size(), 1u) << puzzle.text();
      for (unsigned i = 0; i < people; ++i) knights_in_all[solutions[0] >> i & 1]++;
    }
  }
  // Neither kind is the safe guess.
  EXPECT_GT(knights_in_all[0], 1400);
  EXPECT_GT(knights_in_all[1], 1400);
}

TEST(KnightsAndKnaves, TheNumberOfPeopleGoesAround) {
  const auto task = *make_knights_task(2, 8);
  for (std::uint64_t index = 0; index < 14; ++index) {
    const std::string names = task->prompt(index)->metadata.at("names");
    EXPECT_EQ(static_cast<std::uint64_t>(std::count(names.begin(), names.end(), ',')) + 1, 2 + index % 7);
  }
}

TEST(KnightsAndKnaves, RewardsOnlyWhoIsRightAboutEverybody) {
  const auto task = *make_knights_task(2, 2);
  const Metadata metadata{{"names", "Ella,Noah"}, {"solution", "knight,knave"}};
  const auto score = [&](std::string_view response) { return task->score(metadata, response)->reward; };
  EXPECT_EQ(score("<answer>(1) Ella is a knight\n(2) Noah is a knave</answer>"), 1);
  EXPECT_EQ(score("Ella is a knight and Noah is a knave."), 1);
  EXPECT_EQ(score("- **Ella**: Knight\n- **Noah**: Knave"), 1);
  EXPECT_EQ(score("| ELLA | knight |\n| NOAH | knave |"), 1);
  EXPECT_EQ(score("If Ella is a knave, ... so <answer>Ella is a knight, Noah is a knave</answer> QED"), 1);
  EXPECT_EQ(score("<answer>Ella is a knight</answer>"), 0);
  EXPECT_EQ(score("<answer>Ella is a knight, Noah is a knight</answer>"), 0);
  EXPECT_EQ(score("Ella is a knight, Noah is a knave <answer>Ella is a knave, Noah is a knave</answer>"), 0);
  EXPECT_EQ(score("Ella is a knight, Noah is a knave. No: Noah is a knight."), 0);
  EXPECT_EQ(score(""), 0);
  EXPECT_EQ(task->solution(metadata), "<answer>(1) Ella is a knight\n(2) Noah is a knave</answer>");
}

TEST(KnightsAndKnaves, BothOrEitherSaysNothing) {
  const auto task = *make_knights_task(2, 2);
  const Metadata metadata{{"names", "Zoe"}, {"solution", "knight"}};
  for (const char* said : {"a knight or a knave", "a knave or a knight", "a knight or knave", "knight/knave",
                           "a knight and a knave", "a **knight** or a knave"}) {
    EXPECT_EQ(task->score(metadata, fmt::format("<answer>Zoe is {}</answer>", said))->reward, 0) << said;
  }
  EXPECT_EQ(task->score(metadata, "<answer>Zoe is a knight, and Liam a knave</answer>")->reward, 1);
}

TEST(KnightsAndKnaves, ThePromptsOwnSolutionScores) {
  const auto task = *make_knights_task(2, 8);
  for (std::uint64_t index = 0; index < 50; ++index) {
    const Metadata metadata = task->prompt(index)->metadata;
    std::string answer = metadata.at("names") + "," + metadata.at("solution");
    std::vector<std::string> words;
    for (std::size_t begin = 0; begin <= answer.size();) {
      const std::size_t end = std::min(answer.find(',', begin), answer.size());
      words.push_back(answer.substr(begin, end - begin));
      begin = end + 1;
    }
    std::string right, wrong;
    const std::size_t people = words.size() / 2;
    for (std::size_t i = 0; i < people; ++i) {
      right += words[i] + " is a " + words[people + i] + "\n";
      const bool flipped = i == index % people;
      wrong += words[i] + " is a " + ((words[people + i] == "knight") != flipped ? "knight" : "knave") + "\n";
    }
    EXPECT_EQ(task->score(metadata, right)->reward, 1) << right;
    EXPECT_EQ(task->score(metadata, wrong)->reward, 0) << wrong;
    EXPECT_TRUE(task->score(metadata, task->solution(metadata).value())->success) << right;
  }
}

TEST(KnightsAndKnaves, RefusesMetadataThatDisagree) {
  const auto task = *make_knights_task(2, 2);
  EXPECT_EQ(task->solution({{"names", "A,B"}, {"solution", "knight"}}), std::nullopt);
  EXPECT_EQ(task->score({{"names", "A,B"}, {"solution", "knight"}}, "").error().detail,
            "knights_and_knaves: 2 names and 1 solutions");
  EXPECT_EQ(task->score({{"names", "A,B"}}, "").error().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace weightcast
