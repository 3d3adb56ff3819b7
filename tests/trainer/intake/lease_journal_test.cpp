#include "trainer/intake/lease_journal.h"

#include <algorithm>
#include <functional>

#include "base/steady_clock.h"
#include "trainer/tasks/trajectory/trajectory_json.h"

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
  /// Of that many groups from `first` on.
  static Records some(std::uint64_t first, std::uint64_t count) {
    Records records;
    for (std::uint64_t i = 0; i < count; ++i) records.push_back({first + i, 2 * i, 2, "w"});
    return records;
  }

  const TempDir temp_;
  PosixFileSystem files_;
  const std::filesystem::path path_ = temp_.file("leases.jsonl");
  const LeaseJournal::Record first_{3, 0, 2, "a"}, second_{4, 2, 3, "b \"\n"};
};

TEST_F(LeaseJournalTest, KnowsAfterARestartWhatWasGranted) {
  LeaseJournal journal = LeaseJournal::open(files_, path_, false).value();
  ASSERT_TRUE(journal.append(Records{first_}, 0).has_value());
  ASSERT_TRUE(journal.append(Records{second_}, 0).has_value());
  EXPECT_THAT(found(), ElementsAre(first_, second_));
  EXPECT_TRUE(LeaseJournal::open(files_, path_, false).has_value());
  EXPECT_THAT(found(), IsEmpty()) << "another run";
}

TEST_F(LeaseJournalTest, DropsOfManyLinesThoseThatNoCheckpointNeeds) {
  LeaseJournal journal = LeaseJournal::open(files_, path_, false).value();
  ASSERT_TRUE(journal.append(some(0, 6000), 0).has_value());
  ASSERT_TRUE(journal.append(some(6000, 1), 0).has_value());
  EXPECT_EQ(found(), [&] {
    Records all = some(0, 6000);
    all.push_back(some(6000, 1)[0]);
    return all;
  }()) << "all are needed";
  ASSERT_TRUE(journal.append(some(6001, 12'000), 5990).has_value());
  ASSERT_TRUE(journal.append(some(18'001, 1), 5990).has_value());
  const Records kept = found();
  ASSERT_EQ(kept.size(), 12'012u);
  EXPECT_EQ(kept.front().group, 5990u);
  EXPECT_EQ(kept.back().group, 18'001u);
}

TEST_F(LeaseJournalTest, IsBounded) {
  const std::uint64_t bytes_max = 1000;
  LeaseJournal journal = LeaseJournal::open(files_, path_, false, bytes_max).value();
  for (std::uint64_t group = 0; group < 1000; ++group) {
    ASSERT_TRUE(journal.append(some(group, 1), 0).has_value());
    ASSERT_LE(read_file(files_, path_, 10'000)->size(), bytes_max);
  }
  const Records kept = found();
  EXPECT_GT(kept.size(), 20u);
  EXPECT_EQ(kept.back().group, 999u);
  EXPECT_EQ(kept.front().group, 1000 - kept.size()) << "the newest are kept";
}

TEST_F(LeaseJournalTest, EndsAtTheFirstLineThatIsNone) {
  LeaseJournal journal = LeaseJournal::open(files_, path_, false).value();
  ASSERT_TRUE(journal.append(Records{first_, second_}, 0).has_value());
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

/// Groups of two, 512 of them in a batch.
class ManyLeasesTest : public IntakeTest {
 protected:
  static ReplayOptions options() {
    ReplayOptions options = replay_options();
    options.leased_only = true;
    options.rollout_batch_size = 1024;
    options.rollouts_max = 4096;
    return options;
  }
  /// Leases up to `count` groups to the worker, which makes them whole. Returns what it sent.
  Json deliver_groups(const std::string& worker, std::uint64_t count, std::uint64_t first, std::uint64_t version) {
    const Json leased =
        json(post("/v1/starts", {{"worker", worker}, {"groups", count}, {"first_sequence", first}}))["groups"];
    Json rollouts = Json::array();
    for (std::size_t i = 0; i < 2 * leased.size(); ++i) {
      rollouts.push_back(
          Json::parse(write_trajectory(rollout(worker, first + i, "g" + leased[i / 2].dump(), version))));
    }
    post("/v1/rollouts", {{"rollouts", rollouts}});
    return rollouts;
  }
  /// Trains on so many groups, and more than the journal has spare lines for.
  void train(const std::function<void()>& after_step) {
    std::size_t groups = 0;
    for (std::uint64_t version = 1; groups < 6000; ++version) {
      const Json rollouts = deliver_groups("others", 1000, 2 * groups, version);
      ASSERT_FALSE(rollouts.empty());
      groups += rollouts.size() / 2;
      while (buffer_->take_batch(steady_now())) continue;
      buffer_->handle_step(Version{version + 1});
      buffer_->handle_published(Version{version + 1});
      after_step();
    }
  }
  std::vector<LeaseJournal::Record> journal() {
    return LeaseJournal::open(files_, temp_.file(LeaseJournal::kFile), true)->take_found();
  }
};

TEST_F(ManyLeasesTest, ALearnerThatGoesOnTakesWhatItHadTrainedOnSinceItsCheckpoint) {
  open({}, false, options());
  const Json sent = deliver_groups("first", 1, 0, 1);
  ASSERT_EQ(sent.size(), 2u);
  train([] {});
  open({}, true, options());  // from the checkpoint of before the first lease
  const Json answer = json(post("/v1/rollouts", {{"rollouts", sent}}));
  for (const Json& one : answer["verdicts"]) EXPECT_EQ(one["verdict"], "admitted") << one;
}

TEST_F(ManyLeasesTest, TheJournalHasWhatTheLastTwoCheckpointsNeed) {
  open({}, false, options());
  std::vector<std::uint64_t> next_groups;  // by checkpoint
  train([&] {
    next_groups.push_back(journal().back().group + 1);
    intake_->handle_durable(intake_->handle_copied());
  });
  const std::uint64_t before_last = next_groups[next_groups.size() - 2];
  (void)deliver_groups("w", 1, 0, next_groups.size() + 1);
  const auto kept = journal();
  EXPECT_LE(kept.front().group, before_last);
  EXPECT_GT(kept.front().group, 0u) << "older ones have gone";
  EXPECT_EQ(kept.back().group, kept.front().group + kept.size() - 1) << "and none in between";
  // What the checkpoint says of earlier leases holds, whatever the journal has.
  const std::string source = intake_->save();
  intake_.reset();
  buffer_.set(ReplayBuffer(options(), replay_rules()));
  RolloutIntake resumed(files_, {.listen = {"127.0.0.1", 0}, .directory = temp_.file(".")}, buffer_);
  ASSERT_TRUE(resumed.restore(source).has_value());
  ASSERT_TRUE(resumed.open({}, true).has_value());
  EXPECT_EQ(buffer_->leases().all().size(), kept.back().group + 1 - next_groups.back());
}

}  // namespace
}  // namespace weightcast
