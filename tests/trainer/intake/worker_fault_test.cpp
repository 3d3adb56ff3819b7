#include "trainer/intake/worker_fault.h"

#include "base/steady_clock.h"
#include "trainer/tasks/trajectory/trajectory_json.h"

#include "tests/trainer/intake/intake_fixture.h"

namespace weightcast {
namespace {

using Kind = WorkerFault::Kind;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(WorkerFault, BlamesNobodyForWhatIsLate) {
  IntakeWorker row;
  EXPECT_EQ(fault_of(row, {}).kind, Kind::kNone);
  row.refused = {{"stale", 90}, {"group_closed", 90}, {"lease_ended", 90}, {"version_unknown", 90}, {"vocabulary", 1}};
  row.admitted = 1;
  EXPECT_EQ(fault_of(row, {}).kind, Kind::kNone);
  EXPECT_EQ(fault_of(row, {}).text, "");
  row.refused["vocabulary"] = 2;
  EXPECT_EQ(fault_of(row, {}).kind, Kind::kRefused);
}

TEST(WorkerFault, NamesTheGravestOfSeveral) {
  IntakeWorker row;
  row.refused = {{"vocabulary", 5}, {"other_group", 2}};
  EXPECT_EQ(fault_of(row, {}).text, "2 of the rollouts that it sent were not leased to it (other_group)");
  row.refused["not_leased"] = 3;
  EXPECT_EQ(fault_of(row, {}).text, "3 of the rollouts that it sent were not leased to it (not_leased)");
  LeaseRecord leases;
  leases.groups_failed = 8;
  leases.groups_overdue = 1;
  EXPECT_EQ(fault_of(row, leases).kind, Kind::kNotLeased);
  leases.is_held_back = true;
  EXPECT_EQ(fault_of(row, leases).kind, Kind::kHeldBack);
}

class WorkerFaultTest : public IntakeTest {
 protected:
  std::string fault_in_status(const std::string& worker) {
    const Json status = json(call({.target = "/v1/status"}));
    for (const Json& row : status["workers"]) {
      if (row["name"] == worker) return row["fault"];
    }
    return "no such worker";
  }
  /// Whether it was granted a group, of two rollouts from `first` on. It gives back the two before these.
  bool starts(std::uint64_t first) {
    Json asks{{"worker", "w"}, {"groups", 1}, {"first_sequence", first}};
    if (first > 0) asks["abandoned"] = {first - 2, first - 1};
    return !json(post("/v1/starts", asks))["groups"].empty();
  }
  void send(std::uint64_t sequence, const std::string& group, std::int32_t token) {
    Trajectory t = rollout("w", sequence, group, 1);
    t.tokens[1] = token;
    post("/v1/rollouts", {{"rollouts", {Json::parse(write_trajectory(t))}}});
  }
};

TEST_F(WorkerFaultTest, SaysThatNobodyCountsOnAWorkerThatGivesBackEachLease) {
  open();
  std::uint64_t first = 0;
  for (; first < 2 * 8; first += 2) {
    ASSERT_TRUE(starts(first)) << first;
    EXPECT_EQ(fault_in_status("w"), "") << first;
  }
  starts(first);
  const std::string sentence =
      "it has had leases for long and brought no whole group (8 failed, 1 overdue now): nobody counts on it";
  EXPECT_EQ(fault_in_status("w"), sentence);
  const Instant now = steady_now();
  EXPECT_THAT(intake_->take_faults(now), ElementsAre("worker w: " + sentence));
  EXPECT_THAT(intake_->take_faults(now + std::chrono::minutes(1)), IsEmpty()) << "once";
}

TEST_F(WorkerFaultTest, SaysThatMostOfWhatAWorkerSendsIsRefused) {
  open();
  send(0, "g", 1);
  send(1, "g", 99);
  EXPECT_EQ(fault_in_status("w"), "");
  send(2, "h", 99);
  EXPECT_EQ(fault_in_status("w"), "2 of its rollouts were refused, 1 admitted");
  Instant now = steady_now();
  EXPECT_THAT(intake_->take_faults(now), ElementsAre("worker w: 2 of its rollouts were refused, 1 admitted"));
  send(3, "h", 99);
  now += std::chrono::minutes(1);
  EXPECT_THAT(intake_->take_faults(now), IsEmpty()) << "the same again";
  for (std::uint64_t sequence = 10; sequence < 13; ++sequence) send(sequence, std::to_string(sequence), 1);
  now += std::chrono::minutes(1);
  EXPECT_THAT(intake_->take_faults(now), IsEmpty()) << "it is a good one again";
  EXPECT_EQ(fault_in_status("w"), "");
  for (std::uint64_t sequence = 20; sequence < 23; ++sequence) send(sequence, "i", 99);
  now += std::chrono::minutes(1);
  EXPECT_THAT(intake_->take_faults(now), ElementsAre("worker w: 6 of its rollouts were refused, 4 admitted"));
}

}  // namespace
}  // namespace weightcast
