#include <gtest/gtest.h>

#include "sim/options.h"

namespace weightcast::sim {
namespace {

/// What a fault costs, in the setting in which its bound is stated: 64 MiB to 12 workers in three chains of four, B =
/// 300 and b = 100 Mbit/s. Each fault comes when half of the payload has passed.
class FaultBounds : public testing::Test {
 protected:
  SimResult broadcast_with(std::string_view faults) {
    SimOptions options;
    options.topology = Topology::kChain;
    options.faults = parse_faults(faults).value();
    SimResult result = simulate(options);
    EXPECT_FALSE(result.violation.has_value()) << *result.violation;
    return result;
  }

  /// Until all who live have it, beyond what it takes without a fault.
  double cost_s(const SimResult& result) {
    const SimResult undisturbed = broadcast_with("");
    const auto t = result.publications.at(0).reached(1.0);
    EXPECT_TRUE(t.has_value());
    return t ? to_seconds(*t - *undisturbed.publications.at(0).reached(1.0)) : 1e9;
  }
};

TEST_F(FaultBounds, ForwarderKilledCostsASecondAndNoChunkTwice) {
  // The first of a chain and one in the middle of another.
  for (const char* fault : {"at 2.5s kill worker 1", "at 2.5s kill worker 5"}) {
    const SimResult result = broadcast_with(fault);
    EXPECT_EQ(result.publications.at(0).workers, 11u);
    EXPECT_LE(cost_s(result), 1.0) << fault;
    EXPECT_EQ(result.chunks_delivered_twice, 0u) << fault;
  }
}

TEST_F(FaultBounds, ForwarderThrottledCostsThreeSeconds) {
  EXPECT_LE(cost_s(broadcast_with("at 2.5s throttle worker 1 to 5mbit")), 3.0);
}

TEST_F(FaultBounds, ForwarderThatIsFedSlowlyCostsTheOthersThreeSeconds) {
  // Its own time is that of its link.
  for (const char* fault : {"at 2.5s choke worker 1 to 5mbit for 8s", "at 2.5s choke worker 5 to 5mbit for 8s"}) {
    const SimResult result = broadcast_with(fault);
    const SimResult undisturbed = broadcast_with("");
    const auto others = result.publications.at(0).reached(11.0 / 12);
    ASSERT_TRUE(others.has_value()) << fault;
    EXPECT_LE(to_seconds(*others - *undisturbed.publications.at(0).reached(1.0)), 3.0) << fault;
  }
}

TEST_F(FaultBounds, ASlowEdgeMovesNobodyButThoseAtItsEnds) {
  // Those further down are fed as slowly, but by parents that have no more: were they to leave them, all at once, the
  // origin would have to feed a good part of the chain.
  for (const char* fault : {"at 2.5s throttle worker 1 to 30mbit", "at 2.5s choke worker 1 to 30mbit",
                            "at 2.5s throttle worker 5 to 30mbit", "at 2.5s choke worker 5 to 30mbit"}) {
    const SimResult result = broadcast_with(fault);
    const SimResult undisturbed = broadcast_with("");
    EXPECT_LE(double(result.origin_egress_bytes) / double(undisturbed.origin_egress_bytes), 1.15) << fault;
    EXPECT_LE(result.chunks_delivered_twice, 40u) << fault;
  }
}

TEST_F(FaultBounds, ForwarderStalledCostsThreeSecondsToTheOthers) {
  // Its own time is what it stood still for; the others have theirs.
  const SimResult result = broadcast_with("at 2.5s stall worker 1");
  EXPECT_EQ(result.publications.at(0).workers, 11u);
  EXPECT_LE(cost_s(result), 3.0);
}

TEST_F(FaultBounds, HalfOfTheRelaysKilledCostsThreeSeconds) {
  EXPECT_LE(cost_s(broadcast_with("at 2.5s kill workers 1-6")), 3.0);
}

TEST_F(FaultBounds, OriginStalledForFiveSecondsCostsSixAndNobodyIsBlamedForIt) {
  const SimResult result = broadcast_with("at 2.5s stall origin for 5s");
  EXPECT_LE(cost_s(result), 6.0);
  EXPECT_LE(double(result.origin_egress_bytes) / double(broadcast_with("").origin_egress_bytes), 1.02);
}

TEST_F(FaultBounds, ADamagedChunkCostsASecond) {
  // The chunk itself is little; but the child turns to the origin, whose uplink then feeds four instead of three.
  EXPECT_LE(cost_s(broadcast_with("at 2.5s corrupt worker 1")), 1.0);
}

TEST_F(FaultBounds, ARestartedWorkerKeepsWhatItHad) {
  const SimResult result = broadcast_with("at 2.5s kill worker 1 for 1s");
  EXPECT_EQ(result.publications.at(0).workers, 12u);
  EXPECT_LE(cost_s(result), 5.0);
  EXPECT_EQ(result.chunks_delivered_twice, 0u);
}

TEST_F(FaultBounds, OriginRestartedInTheMiddleOfAPublicationCompletesIt) {
  EXPECT_LE(cost_s(broadcast_with("at 2.5s kill origin for 1s")), 6.0);
}

TEST_F(FaultBounds, ACutOffWorkerCatchesUp) {
  EXPECT_EQ(broadcast_with("at 1s partition worker 5 for 8s").publications.at(0).workers, 12u);
}

TEST_F(FaultBounds, AFullDiskIsTriedAgainLater) {
  EXPECT_EQ(broadcast_with("at 1s fulldisk worker 5 for 3s").publications.at(0).workers, 12u);
}

}  // namespace
}  // namespace weightcast::sim
