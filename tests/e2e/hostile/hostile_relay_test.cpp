// A relay with keys of its own that is a worker like any other, but for what it passes on and says. The other workers
// are real daemons, and get each version bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <utility>

#include "proto/limits.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/e2e/hostile/hostile_worker.h"
#include "tests/transport/core/worker_fixture.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = 8'000'000;
// For a chain of four: enough for chunks that another thread hashes.
constexpr std::uint64_t kBytesOfLargeChunks = 104'000'000;

struct Case {
  Conduct conduct{};
  std::string_view says;  ///< what the origin's log says of it
  const char* topology = "chain";
  const char* streams = "1";
  unsigned honest_until = 0;  ///< the version that it forwards like anybody: it has to have one before it can replay it
  unsigned found_within = 1;  ///< so many publications from then on nobody gets anything from it
  std::uint64_t bytes = kBytes;
  const char* line = "400mbit";  ///< of each node, down and up: so that each publication has the same plan; null: none
};

struct HostileRelay : KeyedFleet, ::testing::WithParamInterface<Case> {};

/// Whether the origin's status holds anything against it, if only one member's word.
bool is_named(const nlohmann::json& node) {
  return node.at("complaints").get<int>() > 0 || !node.at("offence").get<std::string>().empty();
}

/// Whether an honest node has called another one slow: on a busy machine one may stand still for a while. The accused
/// is then among the last of the plan, with the liar, which may feed it.
bool is_another_in_dispute(const std::string& log) {
  const std::regex slow(
      "worker [abc] (says nothing|sends slowly|has more than it passes on|passes on far less than it has), says "
      "[abc]:");
  return std::regex_search(log, slow);
}

/// Whether the origin holds it for honest, whatever a liar says of it.
bool is_trusted(const nlohmann::json& node) {
  return node.at("offence").get<std::string>().empty() && node.at("standing") == "seed";
}

TEST_P(HostileRelay, IsNamedAndLosesItsPlaceAndOthersGetEachVersionBitForBit) {
  const Case& relay = GetParam();
  Cluster::Flags origin{"--topology", relay.topology, "--no-patches", "--pack", "never"},
      worker{"--streams", relay.streams};
  Rate line{};
  if (relay.line != nullptr) {
    origin.insert(origin.end(), {"--uplink", relay.line});
    worker.insert(worker.end(), {"--uplink", relay.line, "--downlink", relay.line});
    line = parse_rate(relay.line).value();
  }
  cluster.start_origin(origin);
  // It joins first, so it comes first in the plan.
  const HostileWorker hostile(keys, "hostile", cluster.temp().file("hostile"), cluster.address("origin"), relay.conduct,
                              line);
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.node("origin", "hostile").is_null(); }));
  for (const char* name : {"a", "b", "c"}) cluster.start_worker(name, worker);
  int changed = 0;
  for (unsigned version = 1; version <= relay.honest_until + relay.found_within + 1; ++version) {
    const std::string source =
        write_snapshot(cluster.temp().file(std::to_string(version) + ".safetensors"), relay.bytes, version);
    // A relay that is not found out delays its children for longer than that.
    ASSERT_THAT(cluster.publish(source, version, {"--wait", "1", "--timeout", "60"}), Exits(0))
        << cluster.status("origin") << cluster.log("origin");
    for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(cluster.holds(name, source)) << name << cluster.log(name);
    // A publication without a fault, in which it feeds nobody, may clear its name. Its place it does not get back.
    const int changed_before = std::exchange(changed, hostile.changed());
    if (version <= relay.honest_until || changed > changed_before) {
      EXPECT_EQ(is_named(cluster.node("origin", "hostile")), version > relay.honest_until) << cluster.log("origin");
    }
    if (version > relay.honest_until + relay.found_within && !is_another_in_dispute(cluster.log("origin"))) {
      EXPECT_EQ(changed, changed_before) << "it feeds nobody any more: " << cluster.log("origin");
    }
  }
  if (relay.line != nullptr) {
    EXPECT_GT(changed, 0) << "it was a relay once";
  }
  EXPECT_THAT(cluster.log("origin"), HasSubstr("worker hostile " + std::string(relay.says)));
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_TRUE(is_trusted(cluster.node("origin", name))) << name << cluster.log("origin");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Conducts, HostileRelay,
    ::testing::Values(
        Case{.conduct = Conduct::kFlipsABit, .says = "sends damaged bytes, says"},
        Case{.conduct = Conduct::kFlipsABit, .says = "sends damaged bytes, says", .bytes = kBytesOfLargeChunks},
        Case{.conduct = Conduct::kSendsNothing, .says = "has more than it passes on, says"},
        // Each of its children complains once.
        Case{.conduct = Conduct::kSendsNothing,
             .says = "has more than it passes on, says",
             .topology = "striped",
             .found_within = 2},
        Case{.conduct = Conduct::kReplaysBytes, .says = "sends damaged bytes, says", .honest_until = 1},
        Case{.conduct = Conduct::kReplaysVersion, .says = "has more than it passes on, says", .honest_until = 1},
        Case{.conduct = Conduct::kDelays, .says = "sends slowly, says"},
        Case{.conduct = Conduct::kServesHalf, .says = "has more than it passes on, says", .streams = "2"},
        Case{.conduct = Conduct::kOverstates, .says = "sends slowly, says"},
        // Its own link is slow, so that it receives for seconds what it says that it lacks, and is the last in the
        // plan: it harms as a child. The others' are fast, and nobody has configured any: else its own node would leave
        // parents that keep no prediction.
        Case{.conduct = Conduct::kUnderstates,
             .says = "says that it starves, while the origin's chunks leave to it",
             .line = nullptr}),
    [](const auto& each) {
      const bool striped = std::string_view(each.param.topology) == "striped";
      return std::string(to_string(each.param.conduct)) + (striped ? "OfAStripe" : "") +
             (each.param.bytes > kBytes ? "OfLargeChunks" : "");
    });

using Impostor = KeyedFleet;

wire::Message join_as(const char* name) {
  wire::Message message = join_message(name, 7);
  message.mutable_join()->mutable_listen()->set_port(9);
  return message;
}

TEST_F(Impostor, IsTurnedAwayNamedAndChangesNothingForTheMemberWhoseNameItTakes) {
  cluster.start_origin({"--topology", "chain"});
  HostileWorker hostile(keys, "hostile", cluster.temp().file("hostile"), cluster.address("origin"), Conduct::kHonest);
  for (const char* name : {"a", "b"}) cluster.start_worker(name);
  const std::string at = cluster.address("a");
  hostile.say(cluster.address("origin"), join_as("a"));
  hostile.say(cluster.address("origin"), join_as("origin"));
  for (const char* victim : {"origin", "b"}) {
    hostile.say(cluster.address(victim), hello_message("a", cluster.node("origin", "a").at("peer_id")));
  }
  EXPECT_TRUE(Cluster::eventually([&] { return hostile.turned_away() == 4; })) << hostile.turned_away();
  EXPECT_THAT(cluster.node("origin", "hostile").at("offence").get<std::string>(), HasSubstr("tried to join as "));
  EXPECT_EQ(cluster.self("origin").at("refused").value("identity", 0), 3) << cluster.log("origin");
  EXPECT_EQ(cluster.self("b").at("refused").value("identity", 0), 1) << cluster.log("b");
  EXPECT_EQ(cluster.node("origin", "a").at("address"), at);
  const std::string source = cluster.publish_bytes(1, kBytes, {"--wait", "1", "--timeout", "60"});
  for (const char* name : {"a", "b"}) EXPECT_TRUE(cluster.holds(name, source)) << name << cluster.log(name);
}

}  // namespace
}  // namespace weightcast
