// Honest relays on slow uplinks of rates that nobody has configured: a chunk to each of their children, by turns, takes
// seconds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sim/simulation.h"
#include "sim/stand_ins.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kStreams = 3;
constexpr Rate kUplink = Rate::bits(20e6);

SimOptions slow_uplinks(Topology topology, std::uint32_t workers, std::uint64_t payload_bytes, std::uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  options.topology = topology;
  options.workers = workers;
  options.network.origin_uplink = Rate::bits(60e6);  // so that workers have to forward
  options.network.worker_uplink = kUplink;
  options.network.jitter_max = 2ms;
  options.nodes.rates_configured = false;
  options.nodes.streams = kStreams;
  options.payload_bytes = payload_bytes;
  options.thorough = false;
  return options;
}

/// A fleet that has joined, and whose links have been probed.
class SlowUplinks {
 public:
  explicit SlowUplinks(const SimOptions& options) : workers_(options.workers), simulation_(options) {
    for (NodeIndex node = 0; node <= workers_; ++node) simulation_.start_node(node);
    run_for(10s);
  }

  /// Until everybody has the next version, and two seconds more.
  void publish() {
    const Version version{++published_};
    const Instant start = simulation_.now();
    simulation_.publish();
    while (!everybody_has(version)) {
      ASSERT_LT(simulation_.now() - start, 3600s) << "version " << published_;
      (void)simulation_.step(simulation_.now() + 10ms);
      ASSERT_FALSE(simulation_.violation()) << *simulation_.violation();
    }
    took_ = simulation_.now() - start;
    run_for(2s);
  }
  [[nodiscard]] double took_s() const { return to_seconds(took_); }
  /// How long the busiest worker takes to send a chunk to each of its children, on each stream, by the plan.
  [[nodiscard]] double round_s() {
    const Plan& plan = *simulation_.origin().publications().latest_plan();
    std::map<PeerId, std::size_t> turns;
    for (const StripePlan& stripe : plan.stripes) {
      for (const PeerId parent : stripe.parents) {
        if (parent != kOriginId) ++turns[parent];
      }
    }
    std::size_t most = 0;
    for (const auto& [parent, count] : turns) most = std::max(most, count);
    return double(most) * kStreams * plan.chunk_bytes / kUplink.bytes_per_s;
  }
  /// Nothing is held against anybody but a liar.
  void expect_nobody_is_blamed() {
    const std::vector<LiarOptions>& liars = simulation_.options().liars;
    for (const auto& [id, member] : simulation_.origin().members().all()) {
      if (!liars.empty() && member.name == member_name(liars.front().node)) continue;
      const std::string where = fmt::format("{} after version {}", member.name, published_);
      EXPECT_EQ(member.standing.standing(), Standing::kSeed) << where;
      EXPECT_EQ(member.offence, "") << where;
      if (!liars.empty()) continue;
      EXPECT_EQ(simulation_.origin().faults().complaints_of(id), 0u) << where;
    }
  }

 private:
  [[nodiscard]] bool everybody_has(Version version) {
    for (NodeIndex node = 1; node <= workers_; ++node) {
      if (simulation_.worker(node)->installed_version() < version) return false;
    }
    return true;
  }
  void run_for(Duration span) {
    const Instant until = simulation_.now() + span;
    while (simulation_.step(until)) {
    }
  }

  const std::uint32_t workers_;
  Simulation simulation_;
  std::uint64_t published_ = 0;
  Duration took_{};
};

void expect_places_are_kept(const std::vector<LiarOptions>& liars) {
  struct Size {
    std::uint32_t workers;
    std::uint64_t payload_bytes;
  };
  double longest_s = 0;
  for (const Topology topology : {Topology::kStriped, Topology::kTree}) {
    for (const Size& size : {Size{12, 64 * kMiB}, Size{12, kGiB}, Size{24, kGiB}}) {
      SimOptions options = slow_uplinks(topology, size.workers, size.payload_bytes, size.workers);
      options.liars = liars;
      SlowUplinks fleet(options);
      const std::string name =
          fmt::format("{}, {} workers, {}", to_string(topology), size.workers, format_bytes(size.payload_bytes));
      SCOPED_TRACE(name);
      for (int version = 1; version <= 3; ++version) {
        fleet.publish();
        if (testing::Test::HasFatalFailure()) return;
        fmt::print("{}, version {}: {:.1f} s; a round takes {:.1f} s\n", name, version, fleet.took_s(),
                   fleet.round_s());
        longest_s = std::max(longest_s, fleet.round_s());
        if (version > 1) fleet.expect_nobody_is_blamed();
      }
    }
  }
  EXPECT_GT(longest_s, 2 * to_seconds(Timeouts().parent_silence)) << "else there is nothing to be patient about";
}

TEST(SlowUplinks, OfHonestRelaysCostThemNoPlace) { expect_places_are_kept({}); }

TEST(SlowUplinks, OfHonestRelaysBesideOneThatWithholdsCostThemNoPlace) {
  LiarOptions liar;
  liar.node = 1;
  liar.lies = {Lie::kWithholds};
  expect_places_are_kept({liar});
}

}  // namespace
}  // namespace weightcast::sim
