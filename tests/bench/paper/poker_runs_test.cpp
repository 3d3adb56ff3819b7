#include "bench/paper/poker/poker_runs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/json_text.h"
#include "bench/paper/paper_bench.h"
#include "tests/patch/temp_dir.h"

namespace weightcast::bench {
namespace {

PokerSuite tiny_poker_suite() {
  PaperItem item = paper_item("echo2-table7").value();
  make_quick(item);
  item.poker->cases.resize(1);
  return *item.poker;
}

PokerOutcome run(const PokerSuite& suite, const std::filesystem::path& directory) {
  auto outcome = run_poker_suite(suite, directory, [](const PokerCell&) {});
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
  return outcome.has_value() ? *outcome : PokerOutcome{};
}

std::vector<std::filesystem::path> matches_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with("match-")) found.push_back(entry.path());
  }
  return found;
}

TEST(PokerRuns, TrainAndPlayEachOpponentAndKeepWhatIsDone) {
  const TempDir dir;
  const std::filesystem::path directory = dir.file("runs");
  const PokerSuite suite = tiny_poker_suite();
  const PokerOutcome first = run(suite, directory);
  ASSERT_EQ(first.runs.size(), 1u);
  EXPECT_EQ(first.runs[0].columns.at("reward").size(), suite.steps);
  ASSERT_EQ(first.cells.size(), 8u) << "before and after, against three rules and the frozen model";
  for (const PokerCell& cell : first.cells) {
    EXPECT_EQ(cell.hands, suite.deals * 2 * suite.table.hands);
    EXPECT_LE(cell.low, cell.mean);
    EXPECT_GE(cell.high, cell.mean);
  }
  const auto matches = matches_in(directory);
  ASSERT_EQ(matches.size(), 8u);
  // One is gone, one is damaged, and one says by its figure that it was taken from the disk.
  std::filesystem::remove(matches[0]);
  std::ofstream(matches[1]) << "{";
  std::ifstream in(matches[2]);
  nlohmann::json marked = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  marked["mean"] = 777.5;
  std::ofstream(matches[2]) << marked.dump();
  const PokerOutcome again = run(suite, directory);
  ASSERT_EQ(again.cells.size(), first.cells.size());
  std::size_t taken = 0;
  for (std::size_t i = 0; i < again.cells.size(); ++i) {
    if (again.cells[i].mean == 777.5) {
      ++taken;
    } else {
      EXPECT_EQ(nlohmann::json(again.cells[i]), nlohmann::json(first.cells[i]))
          << "a match comes to the same chips again";
    }
  }
  EXPECT_EQ(taken, 1u);
  EXPECT_EQ(again.runs[0].columns.at("loss"), first.runs[0].columns.at("loss"));
}

TEST(PokerRuns, SayWhatIsWrongWithASetting) {
  const TempDir dir;
  PokerSuite suite = tiny_poker_suite();
  suite.settings.push_back({"learning_rat", "1"});
  const auto outcome = run_poker_suite(suite, dir.file("runs"), [](const PokerCell&) {});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_NE(outcome.error().message().find("learning_rate"), std::string::npos) << outcome.error().message();
}

}  // namespace
}  // namespace weightcast::bench
