// A daemon that reads its configuration anew while it runs.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/e2e/fleet/cluster.h"

namespace weightcast {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr std::uint64_t kBytes = 2'000'000;

struct ReloadTest : testing::Test {
  Cluster cluster;
  const std::string file = cluster.temp().file("origin.toml");

  void configure(const std::string& text) const { std::ofstream(file) << text; }
  Ran reload(const std::string& name = "origin") const {
    return cluster.run({"reload", "--state", cluster.state(name)});
  }
  double uplink() const { return cluster.self("origin").at("uplink_bytes_per_s").get<double>(); }
  /// Seconds until the worker had it.
  double publish(std::uint64_t version) const {
    const std::string path = write_snapshot(cluster.temp().file("snapshot"), kBytes, static_cast<unsigned>(version));
    const Ran ran = cluster.publish(path, version);
    EXPECT_EQ(ran.status, 0) << ran.err;
    const auto json = nlohmann::json::parse(ran.out, nullptr, false);
    return json.value("t100_s", 0.0);
  }
};

TEST_F(ReloadTest, AnotherUplinkHoldsForTheNextPublication) {
  configure("uplink = \"100kbit\"\n");  // at which a version would take 160 s
  cluster.start_fleet({"w"}, {"--config", file, "--pack", "never", "--no-patches"});
  EXPECT_EQ(uplink(), 12'500);
  configure("uplink = \"1gbit\"\n");
  ASSERT_THAT(reload(), Prints("uplink: 100kbit -> 1gbit\n"));
  EXPECT_EQ(uplink(), 125e6);
  EXPECT_LT(publish(1), 120);
  configure("uplink = \"4mbit\"\n");
  ASSERT_EQ(reload().out, "uplink: 1gbit -> 4mbit\n");
  EXPECT_GT(publish(2), 0.9 * kBytes / 500e3);
  EXPECT_EQ(reload().out, "nothing has changed\n");
}

TEST_F(ReloadTest, ABadFileChangesNothingAndIsNamed) {
  configure("uplink = \"100mbit\"\n");
  cluster.start_origin({"--config", file});
  const auto expect_refused = [&](const std::string& text, const std::string& why) {
    configure(text);
    const Ran ran = reload();
    EXPECT_NE(ran.status, 0);
    EXPECT_THAT(ran.err, HasSubstr(why));
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(uplink(), 12.5e6) << "after " << text;
  };
  expect_refused("uplink = \"3 parsecs\"\n", file + " line 1: uplink is '3 parsecs'");
  expect_refused("uplink = \"1mbit\"\nwidth = 3\n", file + " line 2: 'width' is no key");
  expect_refused("uplink = \"1mbit\"\nkeep = 5\ntopology = \"star\"\n",
                 "topology: auto -> star; keep: 2 -> 5: this changes with a restart alone");
  std::filesystem::remove(file);
  EXPECT_THAT(reload().err, HasSubstr(file));
  EXPECT_EQ(uplink(), 12.5e6);
}

TEST_F(ReloadTest, ALowerUplinkSlowsATransferThatIsUnderWay) {
  constexpr double kSlow = 100e3, kChunk = 1e6;  // a chunk counts when it has left
  configure("uplink = \"16mbit\"\n");
  cluster.start_fleet({"w"}, {"--config", file, "--pack", "never", "--no-patches"});
  const std::string path = write_snapshot(cluster.temp().file("snapshot"), 10 * kBytes, 1);  // 10 s at 16 Mbit/s
  auto published = std::async(std::launch::async, [&] { return cluster.publish(path, 1); });
  const auto sent = [&] { return cluster.self("origin").at("bytes_sent").get<double>(); };
  ASSERT_TRUE(Cluster::eventually([&] { return sent() > 1e6; })) << cluster.log("origin");
  configure("uplink = \"800kbit\"\n");
  ASSERT_EQ(reload().out, "uplink: 16mbit -> 800kbit\n");
  std::this_thread::sleep_for(std::chrono::seconds(1));  // what had been granted before is on its way
  const auto since = std::chrono::steady_clock::now();
  const double before = sent();
  ASSERT_LT(before, 9 * kBytes) << "it was all sent before the reload";
  std::this_thread::sleep_for(std::chrono::seconds(6));
  const double moved = sent() - before;
  const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - since;
  EXPECT_LE(moved, 1.5 * kSlow * lasted.count() + kChunk) << "at the rate before it would be all of it";
  EXPECT_EQ(published.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  configure("uplink = \"1gbit\"\n");
  ASSERT_EQ(reload().status, 0);
  EXPECT_THAT(published.get(), Exits(0));
  EXPECT_TRUE(cluster.holds("w", path));
}

TEST_F(ReloadTest, OtherKeysCountForNewConnections) {
  const ClusterKeys keys;
  cluster.use_keys(keys);
  cluster.start_fleet({"w"});
  const auto expires = [](const nlohmann::json& node) { return node.at("keys_expire_unix_s").get<std::int64_t>(); };
  const std::int64_t before = expires(cluster.self("w"));
  EXPECT_EQ(reload("w").out, "nothing has changed\n");
  static_cast<void>(keys.issue("w", 30, true));
  ASSERT_THAT(reload("w"), Prints(MatchesRegex("certificate: [0-9a-f]+ until .* -> [0-9a-f]+ until .*\n")));
  const std::int64_t after = expires(cluster.self("w"));
  EXPECT_LT(after, before);
  EXPECT_EQ(expires(cluster.node("origin", "w")), before) << "the connection is that of before";

  // Another signing key, without another start of the origin.
  const auto signed_by = [&] { return read_certificate(keys.origin().signing_certificate.get())->serial; };
  const std::string old_key = signed_by();
  ASSERT_EQ(cluster.run({"keys", "rotate", "--dir", keys.directory()}).status, 0);
  ASSERT_THAT(reload(), Prints(HasSubstr("signing key: " + old_key.substr(0, 8))));
  const std::string path = cluster.publish_bytes(1, kBytes);
  EXPECT_TRUE(cluster.holds("w", path));
  EXPECT_THAT(cluster.run({"verify", cluster.state("w"), "--keys", keys.file_of("w")}).out,
              HasSubstr("signing certificate " + signed_by()));

  // The worker's next connection is one under its new keys.
  EXPECT_EQ(cluster.end("origin", SIGTERM), 0);
  cluster.restart("origin");
  EXPECT_TRUE(Cluster::eventually([&] {
    const nlohmann::json node = cluster.node("origin", "w");
    return !node.is_null() && expires(node) == after;
  })) << cluster.log("origin");
  EXPECT_TRUE(cluster.process("w").running());
}

TEST_F(ReloadTest, KeysThatDoNotFitAreRefusedAndThoseBeforeCount) {
  const ClusterKeys keys;
  cluster.use_keys(keys);
  configure("uplink = \"100mbit\"\n");
  cluster.start_fleet({"w"}, {"--config", file});
  const std::string mine = read_owner_only(keys.origin_file())->text();
  configure("uplink = \"10mbit\"\n");
  const auto expect_refused = [&](std::string_view text, const std::string& why) {
    ASSERT_TRUE(write_owner_only(keys.origin_file(), text).has_value());
    const Ran ran = reload();
    EXPECT_NE(ran.status, 0);
    EXPECT_THAT(ran.err, AllOf(HasSubstr(keys.origin_file()), HasSubstr(why)));
    EXPECT_EQ(uplink(), 12.5e6);
  };
  expect_refused("no keys", "");
  expect_refused(read_owner_only(keys.file_of("w"))->text(), "they are for worker w");
  ASSERT_TRUE(write_owner_only(keys.origin_file(), mine).has_value());
  EXPECT_EQ(reload().out, "uplink: 100mbit -> 10mbit\n");
  cluster.start_worker("x");  // which trusts the origin as before
}

TEST_F(ReloadTest, AHangupDoesTheSame) {
  configure("uplink = \"100mbit\"\n");
  cluster.start_origin({"--config", file});
  configure("uplink = \"10mbit\"\n");
  cluster.process("origin").signal(SIGHUP);
  EXPECT_TRUE(Cluster::eventually([&] { return uplink() == 1.25e6; })) << cluster.log("origin");
  EXPECT_THAT(cluster.log("origin"), HasSubstr("the configuration was read again: uplink: 100mbit -> 10mbit"));
  configure("keep = 9\nuplink = \"10mbit\"\n");
  cluster.process("origin").signal(SIGHUP);
  EXPECT_TRUE(Cluster::eventually([&] {
    return cluster.log("origin").find("keep: 2 -> 9: this changes with a restart alone") != std::string::npos;
  })) << cluster.log("origin");
  EXPECT_TRUE(cluster.process("origin").running());
}

TEST_F(ReloadTest, AWorkerTakesLimitsTooUnlessItsListOfRevokedKeysIsDamaged) {
  const ClusterKeys keys;
  cluster.use_keys(keys);
  configure("snapshot-max = \"1GiB\"\n");
  cluster.start_origin();
  cluster.start_worker("w", {"--config", file});
  const auto revoked = std::filesystem::path(keys.file_of("w")).parent_path() / "revoked.pem";
  std::ofstream(revoked) << "not a list";
  configure("downlink = \"2gbit\"\nsnapshot-max = \"1GiB\"\n");
  EXPECT_THAT(reload("w").err, HasSubstr(revoked.native()));
  EXPECT_EQ(cluster.self("w").at("downlink_bytes_per_s").get<double>(), 0) << "nothing is half taken";
  std::filesystem::remove(revoked);
  configure("snapshot-max = \"1MiB\"\ndownlink = \"1gbit\"\nversion-age-max = 3600\n");
  ASSERT_THAT(reload("w"),
              Prints("downlink: unlimited -> 1gbit\nsnapshot-max: 1GiB -> 1MiB\nversion-age-max: 0 -> 3600\n"));
  EXPECT_EQ(cluster.self("w").at("downlink_bytes_per_s").get<double>(), 125e6);
  const std::string path = write_snapshot(cluster.temp().file("snapshot"), kBytes, 1);
  EXPECT_NE(cluster.publish(path, 1, {"--wait", "1", "--timeout", "20"}).status, 0);
  EXPECT_EQ(cluster.version("w"), 0u) << "it is larger than the worker takes by now";
}

}  // namespace
}  // namespace weightcast
