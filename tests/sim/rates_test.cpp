// Fleets that nobody has told their rates: what a publication takes beside one where all rates are configured.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "sim/simulation.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;

struct Link {
  Rate uplink{}, downlink{};
};

constexpr double kRatioMax = 1.1;

constexpr Rate mbit(double rate) { return Rate::bits(rate * 1e6); }

/// A fleet of which node 0 is the origin. All versions have the same size, and come two seconds after the last
/// was installed.
class RatesFleet {
 public:
  RatesFleet(std::vector<Link> links, bool configured, std::uint64_t seed)
      : links_(std::move(links)), configured_(configured), simulation_(options(seed)) {
    for (NodeIndex node = 0; node < links_.size(); ++node) apply(node);
    for (NodeIndex node = 0; node < links_.size(); ++node) simulation_.start_node(node);
    wait(10s);
  }

  /// Seconds until everybody has the next version, and until half of them.
  struct Times {
    double t50_s = 0, t100_s = 0;
  };
  Times publish() {
    const Instant start = simulation_.now();
    const Version version{++published_};
    simulation_.publish();
    Times times;
    const auto installed = [&] {
      std::size_t count = 0;
      for (NodeIndex node = 1; node < links_.size(); ++node) {
        count += simulation_.worker(node)->installed_version() >= version ? 1 : 0;
      }
      return count;
    };
    while (installed() + 1 < links_.size()) {
      (void)simulation_.step(simulation_.now() + 10ms);
      const double now_s = to_seconds(simulation_.now() - start);
      if (2 * installed() < links_.size() - 1) times.t50_s = now_s;
      times.t100_s = now_s;
      if (simulation_.violation() || now_s > 600) break;
    }
    EXPECT_FALSE(simulation_.violation()) << *simulation_.violation();
    wait(2s);
    return times;
  }
  /// The link changes. Who configures rates changes them, too.
  void set(NodeIndex node, Link link) {
    links_[node] = link;
    apply(node);
    if (!configured_) return;
    simulation_.stop_node(node, false);
    simulation_.start_node(node);
    wait(3s);
  }
  void wait(Duration span) {
    const Instant until = simulation_.now() + span;
    while (simulation_.step(until)) {
    }
  }

 private:
  SimOptions options(std::uint64_t seed) {
    SimOptions options;
    options.seed = seed;
    options.workers = static_cast<std::uint32_t>(links_.size() - 1);
    options.patches.enabled = false;
    options.thorough = false;
    options.network.jitter_max = 2ms;
    options.configure_origin = [this](OriginConfig& config) {
      config.uplink = configured_ ? links_[0].uplink : Rate{};
    };
    options.configure_worker = [this](NodeIndex node, WorkerConfig& config) {
      config.uplink = configured_ ? links_[node].uplink : Rate{};
      config.downlink = configured_ ? links_[node].downlink : Rate{};
    };
    return options;
  }
  void apply(NodeIndex node) {
    Fault fault;
    fault.node = fault.node_last = node;
    fault.kind = FaultKind::kThrottle;
    fault.rate = links_[node].uplink;
    simulation_.begin_fault(fault);
    if (node == 0) return;
    fault.kind = FaultKind::kChoke;
    fault.rate = links_[node].downlink;
    simulation_.begin_fault(fault);
  }

  std::vector<Link> links_;
  const bool configured_;
  std::uint64_t published_ = 0;
  Simulation simulation_;
};

std::vector<Link> fleet_of(Rate origin, std::size_t workers, const std::function<Link(std::size_t)>& link) {
  std::vector<Link> links{{origin, Rate{}}};
  for (std::size_t i = 0; i < workers; ++i) links.push_back(link(i));
  return links;
}

/// A link that is another one from the third publication on.
struct Change {
  NodeIndex node = 0;
  Link link;
  /// What the third publication may take, of the time with configured rates: its plan is of the links as they were.
  double ratio_max = kRatioMax;
};

void compare(const std::string& name, const std::vector<Link>& links, const std::optional<Change>& change = {}) {
  constexpr std::uint32_t kChanged = 3;
  for (const std::uint64_t seed : {1, 2}) {
    RatesFleet known(links, true, seed), unknown(links, false, seed);
    for (std::uint32_t i = 1; i <= (change ? 5 : 3); ++i) {
      if (i == kChanged && change) {
        for (RatesFleet* fleet : {&known, &unknown}) fleet->set(change->node, change->link);
      }
      const auto configured = known.publish(), measured = unknown.publish();
      const double ratio = measured.t100_s / configured.t100_s;
      fmt::print("{} seed {} publication {}: t100 {:.2f} s configured, {:.2f} s measured, {:.2f}; t50 {:.2f} {:.2f}\n",
                 name, seed, i, configured.t100_s, measured.t100_s, ratio, configured.t50_s, measured.t50_s);
      if (i == 1) continue;
      EXPECT_LE(ratio, i == kChanged && change ? change->ratio_max : kRatioMax) << name << ", publication " << i;
    }
  }
}

const Link kEqual{mbit(100), mbit(100)};
const auto all_equal = [](std::size_t) { return kEqual; };

TEST(Rates, OfEqualLinksAreFound) {
  for (const std::size_t n : {7, 24}) compare(fmt::format("equal {}", n), fleet_of(mbit(300), n, all_equal));
}

TEST(Rates, OfMixedLinksAreFound) {
  const Link slow{mbit(20), mbit(20)}, slow_uplink{mbit(20), mbit(100)};
  for (const std::size_t n : {7, 24}) {
    compare(fmt::format("mixed {}", n), fleet_of(mbit(300), n, [&](std::size_t i) { return i % 2 ? kEqual : slow; }));
    compare(fmt::format("slow uplinks {}", n),
            fleet_of(mbit(300), n, [&](std::size_t i) { return i % 2 ? kEqual : slow_uplink; }));
    compare(fmt::format("asymmetric {}", n), fleet_of(mbit(300), n, [&](std::size_t) { return slow_uplink; }));
  }
}

TEST(Rates, FollowLinksThatChange) {
  for (const std::size_t n : {7, 24}) {
    // It takes one parent after the other for slow, and here what each has sent holds up what the next one sends.
    compare(fmt::format("worker falls {}", n), fleet_of(mbit(300), n, all_equal), Change{2, {mbit(20), mbit(20)}, 1.7});
    compare(fmt::format("worker rises {}", n),
            fleet_of(mbit(300), n,
                     [](std::size_t i) {
                       return i == 1 ? Link{mbit(50), mbit(50)} : kEqual;
                     }),
            Change{2, kEqual});
    // Up to three copies of all leave a fifth of the uplink that they were planned for.
    compare(fmt::format("origin falls {}", n), fleet_of(mbit(300), n, all_equal), Change{0, {mbit(60), Rate{}}, 3.1});
    compare(fmt::format("origin rises {}", n), fleet_of(mbit(50), n, all_equal), Change{0, {mbit(300), Rate{}}});
  }
}

}  // namespace
}  // namespace weightcast::sim
