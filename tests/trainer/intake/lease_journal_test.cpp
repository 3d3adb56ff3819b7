#include "trainer/intake/lease_journal.h"

#include <algorithm>

#include "base/steady_clock.h"
#include "tasks/trajectory_json.h"

#include "tests/trainer/intake/intake_fixture.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Records = std::vector<LeaseJournal::Record>;

class LeaseJournalTest : public testing::Test {
 protected:
  Records found() {
    Result<LeaseJournal> journal = LeaseJournal::open(files_, path_, true);
    WC_CHECK(journal.has_value());
    return journal->take_found();
  }

  const TempDir temp_;
  PosixFileSystem files_;
  const std::filesystem::path path_ = temp_.file("leases.jsonl");
  const LeaseJournal::Record first_{3, 0, 2, "a"}, second_{4, 2, 3, "b \"\n"};
};

TEST_F(LeaseJournalTest, KnowsAfterARestartWhatWasGranted) {
  LeaseJournal journal = LeaseJournal::open(files_, path_, false).value();
  ASSERT_TRUE(journal.append(Records{first_}).has_value());
  ASSERT_TRUE(journal.append(Records{second_}).has_value());
  EXPECT_THAT(found(), ElementsAre(first_, second_));
  ASSERT_TRUE(journal.replace(Records{second_}).has_value());
  ASSERT_TRUE(journal.append(Records{first_}).has_value());
  EXPECT_EQ(journal.size(), 2u);
  EXPECT_THAT(found(), ElementsAre(second_, first_));
  EXPECT_TRUE(LeaseJournal::open(files_, path_, false).has_value());
  EXPECT_THAT(found(), IsEmpty()) << "another run";
}

TEST_F(LeaseJournalTest, EndsAtTheFirstLineThatIsNone) {
  LeaseJournal journal = LeaseJournal::open(files_, path_, false).value();
  ASSERT_TRUE(journal.append(Records{first_, second_}).has_value());
  const std::string whole = read_file(files_, path_, 1000).value();
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    ASSERT_TRUE(replace_file(files_, path_, whole.substr(0, size), Synced::kNothing).has_value());
    const std::size_t lines =
        static_cast<std::size_t>(std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size), '\n'));
    EXPECT_EQ(found().size(), lines);
    EXPECT_EQ(read_file(files_, path_, 1000)->size(), size == 0 ? 0 : whole.substr(0, size).rfind('\n') + 1);
  }
  for (const char* text : {"[1,2,3]\n", "[1,2,3,4]\n", "[1,-2,3,\"a\"]\n", "{}\n", "x\n"}) {
    ASSERT_TRUE(replace_file(files_, path_, text, Synced::kNothing).has_value());
    EXPECT_THAT(found(), IsEmpty()) << text;
  }
}

TEST_F(IntakeTest, TakesWhatWasLeasedAfterItsCheckpointAndNothingElse) {
  ReplayOptions replay = replay_options();
  replay.leased_only = true;
  open({}, false, replay);
  const Json leased = json(post("/v1/starts", {{"worker", "w"}, {"groups", 1}, {"first_sequence", 4}}));
  ASSERT_EQ(leased["groups"].size(), 1u);
  EXPECT_EQ(leased["groups_begin_at_least"], Json({0}));
  const std::string tag = "g" + leased["groups"][0].dump();
  open({}, true, replay);
  const auto verdict = [&](const std::string& worker, std::uint64_t sequence) {
    const Json answer =
        json(post("/v1/rollouts", {{"rollouts", {Json::parse(write_trajectory(rollout(worker, sequence, tag, 1)))}}}));
    const Json& one = answer["verdicts"][0];
    return one["verdict"] == "refused" ? one["reason"].get<std::string>() : one["verdict"].get<std::string>();
  };
  EXPECT_EQ(verdict("thief", 4), "not_leased");
  EXPECT_EQ(verdict("w", 6), "not_leased");
  EXPECT_EQ(verdict("w", 4), "admitted");
  EXPECT_EQ(verdict("w", 5), "admitted");
  const Json status = json(call({.target = "/v1/status"}));
  for (const Json& row : status["workers"]) {
    EXPECT_EQ(row["fault"], row["name"] == "w" || row["name"] == "thief"
                                ? "1 of the rollouts that it sent were not leased to it (not_leased)"
                                : "");
  }
}

}  // namespace
}  // namespace weightcast
