// The simulated network alone: what faults may do to a connection, and what they may not.
#include "sim/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;

struct Number final : Cargo {
  explicit Number(std::uint32_t number) : value(number) {}
  [[nodiscard]] std::string text() const override { return std::to_string(value); }

  const std::uint32_t value;
};

/// Node 0 says numbers to node 1, over one connection that node 1 dials.
class Pair : private NetworkHandler {
 public:
  explicit Pair(std::uint64_t seed) : random_(seed), network_(NetworkOptions{}, 2, random_, events_, *this) {
    network_.dial(now_, 1, ConnId{1}, 0);
    run_for(1s);
  }

  Network& network() { return network_; }
  [[nodiscard]] Instant now() const { return now_; }
  [[nodiscard]] const std::vector<std::uint32_t>& heard() const { return heard_; }
  [[nodiscard]] const std::vector<NodeIndex>& told_of_the_end() const { return told_; }
  [[nodiscard]] LinkIndex link() const { return link_; }

  void say(std::uint32_t number) {
    network_.send_control(now_, link_, 0, sizeof number, false, std::make_unique<Number>(number));
  }

  /// So long that it waits for the uplink and the downlink.
  void say(std::uint32_t number, std::uint64_t bytes) {
    network_.send_control(now_, link_, 0, bytes, true, std::make_unique<Number>(number));
  }

  void run_for(Duration span) {
    const Instant until = now_ + span;
    events_.schedule(until, EventKind::kTimer);
    for (;;) {
      const Event event = *events_.pop();
      now_ = event.at;
      if (event.kind == EventKind::kTimer) return;
      if (!network_.hold(now_, event)) network_.handle(now_, event);
    }
  }

 private:
  bool is_up(NodeIndex) const override { return true; }
  ConnId on_accept(NodeIndex, NodeIndex, LinkIndex link) override {
    link_ = link;
    return ConnId{1};
  }
  void on_connected(NodeIndex, ConnId) override {}
  void on_closed(NodeIndex node, ConnId, const Error&) override { told_.push_back(node); }
  void on_control(NodeIndex, ConnId, NodeIndex, Cargo& cargo) override {
    heard_.push_back(static_cast<Number&>(cargo).value);
  }
  void on_chunk(NodeIndex, ConnId, PayloadId, ChunkIndex, bool, Cargo*) override {}
  void on_chunk_sent(NodeIndex, ConnId) override {}

  Random random_;
  EventQueue events_;
  Network network_;
  Instant now_{};
  LinkIndex link_ = kNoIndex;
  std::vector<std::uint32_t> heard_;
  std::vector<NodeIndex> told_;
};

Fault partition_of_everybody(Duration at) {
  Fault fault;
  fault.kind = FaultKind::kPartition;
  fault.at = at;
  return fault;
}

TEST(Network, KeepsTheOrderOfAConnectionWhenOnePartitionFollowsTheOther) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Pair pair(seed);
    const Fault first = partition_of_everybody(1s), second = partition_of_everybody(2s);
    pair.network().begin(pair.now(), first);
    pair.say(1);
    pair.run_for(100ms);
    pair.network().end(pair.now(), first);
    // The sender has not tried the first message again yet.
    pair.network().begin(pair.now(), second);
    pair.say(2);
    pair.run_for(2s);
    EXPECT_TRUE(pair.heard().empty());
    pair.network().end(pair.now(), second);
    pair.run_for(2s);
    EXPECT_THAT(pair.heard(), testing::ElementsAre(1, 2)) << "seed " << seed;
  }
}

TEST(Network, KeepsInOrderWhatArrivesWhileItsReaderPauses) {
  Pair pair(1);
  pair.network().pause(pair.link(), 1);
  pair.say(1);
  pair.run_for(1s);
  EXPECT_TRUE(pair.heard().empty());
  pair.say(2);
  pair.network().resume(pair.now(), pair.link(), 1);
  pair.say(3);
  pair.run_for(1s);
  EXPECT_THAT(pair.heard(), testing::ElementsAre(1, 2, 3));
}

// A downlink becomes slower while the last message is on its way: the end of the connection waits for that, too.
TEST(Network, KeepsTheEndOfAConnectionBehindWhatWasSentBeforeIt) {
  Fault choke;
  choke.kind = FaultKind::kChoke;
  choke.node = choke.node_last = 1;
  choke.rate = Rate::bits(10e6);
  for (const bool ends_before : {false, true}) {
    Pair pair(1);
    // The second waits for the downlink for 0.1 s. The uplink is three times as fast.
    pair.say(1, 1'250'000);
    pair.say(2, 1'250'000);
    pair.run_for(80ms);
    if (ends_before) pair.network().drop_node(pair.now(), 0);
    pair.network().begin(pair.now(), choke);
    if (!ends_before) pair.network().drop_node(pair.now(), 0);
    pair.run_for(10s);
    EXPECT_THAT(pair.heard(), testing::ElementsAre(1, 2)) << ends_before;
    EXPECT_THAT(pair.told_of_the_end(), testing::ElementsAre(1));
  }
}

TEST(Network, TellsNobodyThatAHostHasLostPowerUntilItIsBackAndHearsOfTheConnection) {
  Pair pair(1);
  pair.network().lose_power(pair.now(), 1);
  pair.say(1);
  pair.run_for(10s);
  EXPECT_TRUE(pair.told_of_the_end().empty());
  pair.network().handle_restart(1);
  pair.run_for(10s);
  EXPECT_TRUE(pair.told_of_the_end().empty());
  pair.say(2);
  pair.run_for(1s);
  EXPECT_THAT(pair.told_of_the_end(), testing::ElementsAre(0));
  EXPECT_TRUE(pair.heard().empty());
}

TEST(Network, GivesAHostUpThatStaysWithoutPower) {
  Pair pair(1);
  pair.network().lose_power(pair.now(), 1);
  pair.run_for(59s);
  EXPECT_TRUE(pair.told_of_the_end().empty());
  pair.run_for(2s);
  EXPECT_THAT(pair.told_of_the_end(), testing::ElementsAre(0));
}

}  // namespace
}  // namespace weightcast::sim
