#include "transport/core/origin/members/rate_probes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/transport/core/origin/origin_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

/// An origin whose members answer probes as their links would.
struct RateProbesTest : OriginCoreTest {
  explicit RateProbesTest(Rate uplink = Rate{})
      : core([&] {
          config.uplink = uplink;
          return config;
        }()) {}

  OriginCore core;
  struct Worker {
    double down = 0, up = 0;        // bytes per second
    double says_down = 0;           // if it lies
    std::uint32_t losses = 0;       // so many bursts towards it lose a packet, which makes them ten times slower
    std::uint64_t heard_bytes = 0;  // of padding
    std::uint64_t asked_bytes = 0;  // of answers
    std::uint32_t bursts = 0;
    bool answers = true;
  };
  std::map<ConnId, Worker> workers;
  std::uint32_t last_probe = 0;
  std::vector<std::string> log;

  struct Caps {
    double down = 0, up = 0;  // bytes per second; 0: none
  };
  ConnId add(const std::string& name, Worker worker, Caps caps) {
    wire::Message message = join_message(name);
    message.mutable_join()->set_downlink_bytes_per_s(caps.down);
    message.mutable_join()->set_uplink_bytes_per_s(caps.up);
    const ConnId conn = core.next_conn();
    workers[conn] = worker;
    core.handle_accepted(now, conn, "host");
    core.handle_message(now, conn, message);
    settle();
    return conn;
  }
  ConnId add(const std::string& name, Worker worker) { return add(name, worker, Caps{}); }
  void settle() {
    for (auto action = core.poll_action(); action; action = core.poll_action()) {
      if (const auto* logged = std::get_if<action::Log>(&*action)) log.push_back(logged->text);
      const auto* send = std::get_if<action::Send>(&*action);
      if (send == nullptr || !send->message.has_rate_probe() || !workers.contains(send->conn)) continue;
      answer(send->conn, workers[send->conn], send->message.rate_probe());
    }
  }
  void answer(ConnId conn, Worker& worker, const wire::RateProbe& probe) {
    last_probe = probe.probe();
    wire::Message message;
    wire::RateProbed& probed = *message.mutable_rate_probed();
    probed.set_probe(probe.probe());
    if (!worker.answers) {
      worker.heard_bytes += probe.padding().size();
      return;
    }
    if (probe.answer_bytes() > 0) {
      ++worker.bursts;
      worker.asked_bytes += probe.answer_bytes();
      for (std::uint32_t left = probe.answer_bytes(); left > 0;) {
        const std::uint32_t bytes = std::min(left, kBurstMessageBytes);
        left -= bytes;
        now += from_seconds(bytes / worker.up);
        probed.set_padding(std::string(bytes, '\0'));
        probed.set_bytes_left(left);
        core.handle_message(now, conn, message);
      }
      return;
    }
    worker.heard_bytes += probe.padding().size();
    now += from_seconds(double(probe.padding().size()) / worker.down);
    if (probe.bytes_left() > 0) return;
    ++worker.bursts;
    const double down = worker.losses > 0 ? worker.down / 10 : worker.down;
    worker.losses -= worker.losses > 0 ? 1 : 0;
    probed.set_bytes_per_s(worker.says_down != 0 ? worker.says_down : down);
    probed.set_seconds(0.1);
    core.handle_message(now, conn, message);
  }
  /// Each worker says that it is there, again and again.
  void beat(Duration span = 1s) {
    for (const Instant until = now + span; now < until; now += 100ms) {
      for (const auto& [conn, worker] : std::map(workers)) {
        wire::Message message;
        message.mutable_heartbeat();
        core.handle_message(now, conn, message);
        settle();
      }
    }
  }
  std::uint64_t published = 0;
  void publish() {
    ++published;
    core.handle_publish(now, now, {manifest_of(Version{published}, 4000), chunk_digests(Version{published}, 4000)});
    settle();
  }
  double payload_bytes() { return double(core.holdings().at(Version{published}).manifest().payload_bytes); }
  /// It has installed what was published last, and received it at that rate, by its own word.
  void receive(ConnId conn, double bytes_per_s, double disk_behind_s = 0) {
    wire::Message message =
        installed_message(Version{published}, core.holdings().at(Version{published}).manifest().snapshot_digest);
    wire::Installed& installed = *message.mutable_installed();
    installed.set_seconds(payload_bytes() / bytes_per_s);
    installed.mutable_phases()->set_receiving_s(payload_bytes() / bytes_per_s);
    installed.mutable_phases()->set_bytes(static_cast<std::uint64_t>(payload_bytes()));
    installed.mutable_phases()->set_disk_behind_s(disk_behind_s);
    core.handle_message(now, conn, message);
    settle();
  }
  /// The lines that have this in them.
  std::vector<std::string> lines(const std::string& words) const {
    std::vector<std::string> found;
    std::ranges::copy_if(log, std::back_inserter(found),
                         [&](const std::string& line) { return line.find(words) != std::string::npos; });
    return found;
  }
  const Member& one(const std::string& name) { return *core.members().find(*core.members().id_of(name)); }
};

constexpr double kTolerance = 0.02;

TEST_F(RateProbesTest, MeasureAMemberThatJoins) {
  add("a", {.down = 12e6, .up = 3e6});
  beat();
  EXPECT_NEAR(one("a").planned_downlink().bytes_per_s / 12e6, 1, kTolerance);
  EXPECT_NEAR(one("a").planned_uplink().bytes_per_s / 3e6, 1, kTolerance);
  EXPECT_GE(core.planned_uplink().bytes_per_s, 11e6);
}

TEST_F(RateProbesTest, OneLostPacketMakesNoLinkSlow) {
  const ConnId conn = add("a", {.down = 12e6, .up = 3e6});
  beat();
  for (const std::uint32_t losses : {1, 2}) {
    now += RateProbes::kEvery;
    workers[conn].losses = losses;
    beat();
    EXPECT_EQ(workers[conn].losses, 0u);
    EXPECT_NEAR(one("a").planned_downlink().bytes_per_s / (losses == 1 ? 12e6 : 1.2e6), 1, kTolerance);
  }
}

TEST_F(RateProbesTest, LeaveAloneWhoseRatesAreConfigured) {
  config.uplink = Rate{1e6};
  OriginCore told(config);
  const ConnId conn = told.next_conn();
  told.handle_accepted(now, conn, "host");
  told.handle_message(now, conn, join_message("a"));
  wire::Message beat;
  beat.mutable_heartbeat();
  told.handle_message(now + 1s, conn, beat);
  while (const auto action = told.poll_action()) {
    const auto* send = std::get_if<action::Send>(&*action);
    EXPECT_FALSE(send != nullptr && send->message.has_rate_probe());
  }
}

TEST_F(RateProbesTest, AreBounded) {
  const ConnId fast = add("fast", {.down = 1e9, .up = 1e9});
  beat(10s);
  // What it is probed with alone, and what it is sent together with others.
  EXPECT_LE(workers[fast].heard_bytes, 6 * kMiB + kBurstBytesMax);
  const std::uint64_t before = workers[fast].heard_bytes;
  beat(60s);
  EXPECT_EQ(workers[fast].heard_bytes, before);
  beat(RateProbes::kEvery);
  EXPECT_GT(workers[fast].heard_bytes, before);
}

TEST_F(RateProbesTest, SendNoMoreInABurstThanAConfiguredUplinkMayInSixtyMilliseconds) {
  const ConnId capped = add("capped", {.down = 100e6, .up = 100e6}, {.up = 2e6});
  beat(3s);
  EXPECT_GT(workers[capped].asked_bytes, 0u);
  EXPECT_LE(workers[capped].asked_bytes, RateProbes::kBytesFirst + 2e6 * 0.06 + kBurstMessageBytes);
  EXPECT_EQ(one("capped").planned_uplink(), Rate{2e6});
}

struct CappedOriginTest : RateProbesTest {
  CappedOriginTest() : RateProbesTest(Rate{2e6}) {}
};

TEST_F(CappedOriginTest, SendsNoMoreInABurstThanItMayInSixtyMilliseconds) {
  const ConnId a = add("a", {.down = 100e6, .up = 100e6});
  beat(3s);
  EXPECT_GT(workers[a].heard_bytes, 0u);
  EXPECT_LE(workers[a].heard_bytes, RateProbes::kBytesFirst + 2e6 * 0.06 + kBurstMessageBytes);
}

TEST_F(RateProbesTest, GiveUpWhoDoesNotAnswer) {
  const ConnId mute = add("mute", {.down = 1e6, .up = 1e6, .answers = false});
  beat();
  add("a", {.down = 12e6, .up = 3e6});
  beat(RateProbes::kAnswerMax * 3);
  EXPECT_FALSE(one("mute").planned_downlink().limited());
  EXPECT_TRUE(one("a").planned_downlink().limited());
  EXPECT_LE(workers[mute].heard_bytes, 1 * kMiB);
}

TEST_F(RateProbesTest, WaitWhileSomethingIsPublished) {
  const ConnId a = add("a", {.down = 12e6, .up = 3e6});
  beat();
  publish();
  const std::uint32_t before = workers[a].bursts;
  const ConnId b = add("b", {.down = 12e6, .up = 3e6});
  beat(5s);
  EXPECT_EQ(workers[b].bursts, 0u);
  EXPECT_EQ(workers[a].bursts, before);
  for (const ConnId conn : {a, b}) receive(conn, 12e6);
  beat();
  EXPECT_GT(workers[b].bursts, 0u);
}

TEST_F(RateProbesTest, WhatAPublicationDisturbsDoesNotCountAndIsMeasuredAfterIt) {
  const ConnId a = add("a", {.down = 12e6, .up = 3e6, .answers = false});
  beat(100ms);
  ASSERT_GT(workers[a].heard_bytes, 0u);
  const std::uint32_t probe = last_probe;
  publish();
  wire::Message late;
  late.mutable_rate_probed()->set_probe(probe);
  late.mutable_rate_probed()->set_bytes_per_s(1e6);
  late.mutable_rate_probed()->set_seconds(1);
  workers[a].answers = true;
  const std::uint64_t before = workers[a].heard_bytes;
  core.handle_message(now, a, late);
  settle();
  EXPECT_EQ(workers[a].heard_bytes, before) << "nothing more is sent beside the publication";
  receive(a, 12e6);
  beat();
  EXPECT_NEAR(one("a").planned_downlink().bytes_per_s / 12e6, 1, kTolerance);
}

TEST_F(RateProbesTest, GoOnBesideAMemberThatNeverInstalls) {
  add("never", {.down = 12e6, .up = 3e6});
  beat();
  publish();
  const ConnId late = add("late", {.down = 12e6, .up = 3e6});
  receive(late, 12e6);
  beat(5s);
  EXPECT_EQ(workers[late].bursts, 0u);
  beat(60s);
  EXPECT_NEAR(one("late").planned_uplink().bytes_per_s / 3e6, 1, kTolerance);
}

TEST_F(RateProbesTest, WhoHangsUpInTheJointBurstTakesNothingFromTheOthers) {
  const ConnId leaver = add("leaver", {.down = 12e6, .up = 12e6});
  for (const char* name : {"a", "b"}) add(name, {.down = 12e6, .up = 12e6});
  beat(10s);
  const auto joint = [&] { return lines("this origin's uplink carries").size(); };
  const std::size_t before = joint();
  workers[leaver].answers = false;
  for (const char* name : {"c", "d", "e"}) add(name, {.down = 12e6, .up = 12e6});
  beat(1s);
  ASSERT_EQ(joint(), before) << "one has not answered yet";
  core.handle_closed(now, leaver, fail(Errc::kClosed, Op::kReceive, "gone"));
  workers.erase(leaver);
  beat(1s);
  EXPECT_EQ(joint(), before + 1);
}

TEST_F(RateProbesTest, HalfOfThemAreEnoughForTheOriginsUplink) {
  for (const char* name : {"m1", "m2", "m3"}) add(name, {.down = 12e6, .up = 12e6, .answers = false});
  for (const char* name : {"a", "b", "c", "d"}) add(name, {.down = 12e6, .up = 12e6});
  beat(10 * RateProbes::kAnswerMax);
  EXPECT_GE(core.planned_uplink().bytes_per_s, 5e6);
  EXPECT_TRUE(lines("uplink carries unlimited").empty());
}

TEST_F(RateProbesTest, AnotherConnectionIsProbedAtOnce) {
  const ConnId a = add("a", {.down = 12e6, .up = 3e6, .answers = false});
  beat(100ms);
  ASSERT_GT(workers[a].heard_bytes, 0u);
  workers.erase(a);
  add("a", {.down = 12e6, .up = 3e6});
  const Instant before = now;
  beat(1s);
  add("b", {.down = 12e6, .up = 3e6});
  beat(1s);
  EXPECT_TRUE(one("b").planned_uplink().limited()) << "nobody waits for what the old connection was sent";
  now = before + RateProbes::kRetry;
  beat(1s);
  EXPECT_TRUE(one("a").planned_uplink().limited());
}

TEST_F(RateProbesTest, WhoHasWaitedLongestComesFirst) {
  for (int i = 0; i < 20; ++i) add(fmt::format("mute{}", i), {.down = 12e6, .up = 3e6, .answers = false});
  add("a", {.down = 12e6, .up = 3e6});
  beat(22 * RateProbes::kAnswerMax);
  EXPECT_TRUE(one("a").planned_uplink().limited());
}

TEST_F(RateProbesTest, ALiarChangesNobodyElsesRates) {
  for (const double lie : {1.0, 1e12, -5.0, std::numeric_limits<double>::quiet_NaN()}) {
    const std::string honest = fmt::format("honest-{}", lie);
    add(honest, {.down = 12e6, .up = 3e6});
    add(fmt::format("liar-{}", lie), {.down = 12e6, .up = 3e6, .says_down = lie});
    beat(3s);
    EXPECT_NEAR(one(honest).planned_downlink().bytes_per_s / 12e6, 1, kTolerance) << lie;
    EXPECT_NEAR(one(honest).planned_uplink().bytes_per_s / 3e6, 1, kTolerance) << lie;
    // The workers of this test receive one after the other: together as much as one alone.
    EXPECT_NEAR(core.planned_uplink().bytes_per_s / 12e6, 1, kTolerance) << lie;
  }
}

TEST_F(RateProbesTest, WhoDawdlesDoesNotMakeTheOriginLookSlow) {
  for (const char* name : {"a", "b"}) add(name, {.down = 12e6, .up = 12e6});
  beat(3s);
  const ConnId dawdler = add("c", {.down = 12e6, .up = 12e6});
  add("d", {.down = 12e6, .up = 12e6});
  workers[dawdler].answers = false;
  beat(5 * RateProbes::kAnswerMax);
  EXPECT_GE(core.planned_uplink().bytes_per_s, 8e6);
}

TEST_F(RateProbesTest, IgnoreWhatNobodyAskedFor) {
  const ConnId a = add("a", {.down = 12e6, .up = 3e6});
  beat();
  wire::Message message;
  message.mutable_rate_probed()->set_bytes_per_s(1);
  message.mutable_rate_probed()->set_padding("x");
  for (std::uint32_t probe = 0; probe < 100; ++probe) {
    message.mutable_rate_probed()->set_probe(probe);
    core.handle_message(now, a, message);
  }
  beat();
  EXPECT_NEAR(one("a").planned_uplink().bytes_per_s / 3e6, 1, kTolerance);
}

TEST_F(RateProbesTest, AreRememberedOverARestart) {
  add("a", {.down = 12e6, .up = 3e6});
  beat();
  OriginCore after(config);
  after.restore_peers(now, core.peer_records(now));
  const Member& a = *after.members().find(*after.members().id_of("a"));
  EXPECT_EQ(a.planned_uplink(), one("a").planned_uplink());
  EXPECT_EQ(a.planned_downlink(), one("a").planned_downlink());
  EXPECT_EQ(after.planned_uplink(), core.planned_uplink());
  EXPECT_FALSE(after.members().id_of(config.name).has_value()) << "the origin is no worker";
}

TEST_F(RateProbesTest, AreRememberedWhenAMemberComesBack) {
  const ConnId before = add("a", {.down = 12e6, .up = 3e6});
  beat();
  const Rate uplink = one("a").planned_uplink(), downlink = one("a").planned_downlink();
  core.handle_closed(now, before, fail(Errc::kClosed, Op::kReceive, "gone"));
  workers.erase(before);
  const ConnId after = add("a", {.down = 12e6, .up = 3e6});
  EXPECT_EQ(one("a").planned_uplink(), uplink);
  EXPECT_EQ(one("a").planned_downlink(), downlink);
  beat(RateProbes::kEvery / 2);
  EXPECT_EQ(workers[after].bursts, 0u) << "it was probed a moment ago";
}

TEST_F(RateProbesTest, AreCappedByWhatIsConfigured) {
  add("up", {.down = 12e6, .up = 12e6}, {.up = 2e6});
  add("wrong", {.down = 12e6, .up = 3e6}, {.up = 50e6});
  beat();
  EXPECT_EQ(one("up").planned_uplink(), Rate{2e6});
  EXPECT_NEAR(one("up").planned_downlink().bytes_per_s / 12e6, 1, kTolerance);
  EXPECT_NEAR(one("wrong").planned_uplink().bytes_per_s / 3e6, 1, kTolerance) << "its link does not carry the cap";
}

TEST_F(RateProbesTest, ASlowTransferLowersNoRateByItself) {
  const ConnId a = add("a", {.down = 12e6, .up = 12e6}, {12.5e6, 12.5e6});
  const ConnId b = add("b", {.down = 12e6, .up = 12e6}, {12.5e6, 12.5e6});
  beat();
  publish();
  receive(a, 2e6);
  receive(b, 2e6);
  for (const char* name : {"a", "b"}) EXPECT_EQ(one(name).planned_downlink(), Rate{12.5e6}) << name;
  beat(3s);
  EXPECT_GT(workers[a].bursts, 0u) << "the cause may be its link";
  for (const char* name : {"a", "b"}) EXPECT_EQ(one(name).planned_downlink(), Rate{12.5e6}) << name;
}

TEST_F(RateProbesTest, GoOnBesideAMemberThatCannotInstall) {
  const ConnId full = add("full", {.down = 12e6, .up = 3e6});
  beat();
  publish();
  wire::Message message;
  set_payload(*message.mutable_install_failed(), Version{published});
  message.mutable_install_failed()->set_code(std::uint32_t(Errc::kNoSpace));
  core.handle_message(now, full, message);
  const ConnId late = add("late", {.down = 12e6, .up = 3e6});
  receive(late, 12e6);
  beat(3s);
  EXPECT_NEAR(one("late").planned_uplink().bytes_per_s / 3e6, 1, kTolerance);
}

TEST_F(RateProbesTest, ATransferThatMissesIsSaidOnceAndBothEndsAreMeasuredAnew) {
  const ConnId a = add("a", {.down = 12e6, .up = 12e6}), b = add("b", {.down = 12e6, .up = 12e6}),
               c = add("c", {.down = 12e6, .up = 12e6});
  beat();
  publish();
  const auto parent_of = [&](const char* name) {
    return parents_of(*core.publications().latest_plan(), one(name).id).at(0);
  };
  ASSERT_EQ(parent_of("b"), one("a").id);
  ASSERT_EQ(parent_of("c"), one("b").id);
  workers[b].down = workers[b].up = 2e6;
  const std::uint32_t of_a = workers[a].bursts, of_c = workers[c].bursts;
  receive(a, 12e6);
  receive(b, 2e6);
  receive(c, 2e6);
  const auto told = lines("slower than planned");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("a to b carried 16 Mbit/s, planned "), std::string::npos) << told[0];
  beat(3s);
  EXPECT_GT(workers[a].bursts, of_a);
  EXPECT_EQ(workers[c].bursts, of_c) << "it could get no more than its parent";
  EXPECT_NEAR(one("b").planned_downlink().bytes_per_s / 2e6, 1, kTolerance);
  EXPECT_NEAR(one("a").planned_uplink().bytes_per_s / 12e6, 1, kTolerance);
  EXPECT_EQ(lines("any more").size(), 1u) << "the cause";
  EXPECT_EQ(lines("worker b: its link carries 16 Mbit/s down and 16 Mbit/s up, not 9").size(), 1u);
}

TEST_F(RateProbesTest, BothEndsOfAnEdgeThatAChildLeftAsTooSlowAreMeasuredAnew) {
  const ConnId a = add("a", {.down = 12e6, .up = 12e6}), b = add("b", {.down = 12e6, .up = 12e6}),
               c = add("c", {.down = 12e6, .up = 12e6});
  beat();
  publish();
  ASSERT_EQ(parents_of(*core.publications().latest_plan(), one("b").id).at(0), one("a").id);
  const std::uint32_t of_a = workers[a].bursts, of_b = workers[b].bursts, of_c = workers[c].bursts;
  wire::Message message;
  wire::ParentFault& fault = *message.mutable_parent_fault();
  set_payload(fault, Version{published});
  fault.set_parent_id(one("a").id.value);
  fault.set_now_from_id(kOriginId.value);
  fault.set_kind(wire::FAULT_KIND_SLOW);
  core.handle_message(now, b, message);
  for (const ConnId conn : {a, b, c}) receive(conn, 12e6);
  beat(3s);
  EXPECT_GT(workers[a].bursts, of_a);
  EXPECT_GT(workers[b].bursts, of_b);
  EXPECT_EQ(workers[c].bursts, of_c);
}

TEST_F(RateProbesTest, AnUplinkThatIsDoubtedIsMeasuredBeforeAnyMember) {
  const ConnId a = add("a", {.down = 12e6, .up = 12e6}), b = add("b", {.down = 12e6, .up = 12e6});
  beat();
  publish();
  log.clear();
  for (const ConnId conn : {a, b}) {
    workers[conn].down = 2e6;
    receive(conn, 2e6);
  }
  beat(5s);
  const auto carries = lines("carrie");
  ASSERT_GE(carries.size(), 3u);
  EXPECT_NE(carries[0].find("origin to a carried 16 Mbit/s"), std::string::npos) << carries[0];
  EXPECT_NE(carries[1].find("this origin's uplink carries"), std::string::npos) << carries[1];
  EXPECT_NE(carries[2].find("its link carries"), std::string::npos) << carries[2];
}

TEST_F(RateProbesTest, ADiskThatIsBehindIsNoFaultOfALink) {
  const ConnId a = add("a", {.down = 12e6, .up = 12e6});
  beat();
  publish();
  const std::uint32_t before = workers[a].bursts;
  receive(a, 2e6, payload_bytes() / 2e6 - payload_bytes() / 12e6);
  beat(3s);
  EXPECT_TRUE(lines("slower than planned").empty());
  EXPECT_EQ(workers[a].bursts, before);
}

}  // namespace
}  // namespace weightcast
