#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "base/files/unique_fd.h"
#include "tests/e2e/fleet/cluster.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = 6'000'000;

std::string last_error(const Cluster& cluster, const std::string& name) {
  const auto self = cluster.self(name);
  return self.is_null() ? std::string() : self.at("last_error").get<std::string>();
}

testing::AssertionResult says(const Cluster& cluster, const std::string& name, const std::string& text) {
  if (Cluster::eventually([&] { return last_error(cluster, name).find(text) != std::string::npos; })) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << name << " says \"" << last_error(cluster, name) << "\", not " << text << "; "
                                     << cluster.log(name);
}

testing::AssertionResult logs(const Cluster& cluster, const std::string& name, const std::string& text) {
  if (Cluster::eventually([&] { return cluster.log(name).find(text) != std::string::npos; })) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << name << " does not log " << text << ": " << cluster.log(name);
}

/// A daemon that is launched and has to answer, whether or not anybody lets it in.
void launch_worker(Cluster& cluster, const std::string& name, const std::string& origin, Cluster::Flags flags) {
  flags.insert(flags.end(), {"--role", "worker", "--origin", origin});
  cluster.launch(name, flags);
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.self(name).is_null(); })) << cluster.log(name);
}

using Trust = KeyedFleet;

TEST_F(Trust, AFleetWithKeysPublishesRelaysAndPatches) {
  cluster.start_origin({"--topology", "chain", "--uplink", "200mbit"});
  for (const char* name : {"a", "b", "c"}) cluster.start_worker(name, {"--uplink", "200mbit", "--downlink", "200mbit"});
  std::string source;
  for (std::uint64_t version = 1; version <= 3; ++version) {
    // The last differs little from the one before: a patch.
    source = cluster.temp().file("step");
    write_snapshot(source, kBytes, version == 1 ? 1 : 2);
    ASSERT_THAT(cluster.publish(source, version, {"--wait", "1", "--timeout", "60"}), Exits(0));
  }
  std::size_t relayed = 0;
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_TRUE(cluster.holds(name, source));
    relayed += cluster.self(name).at("bytes_sent").get<std::uint64_t>() > 0 ? 1 : 0;
  }
  EXPECT_GE(relayed, 1u);
}

// With the commands, in the order in which a person gives them.
TEST_F(Trust, AnotherSigningKeyAndAnotherAuthorityComeWithoutNewKeysForEverybody) {
  const auto rotate = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"keys", "rotate", "--dir", keys.directory(), "--overlap", "7"});
    EXPECT_THAT(cluster.run(flags), Prints(HasSubstr("origin.pem")));
    EXPECT_EQ(cluster.end("origin", SIGTERM), 0);
    cluster.restart("origin");
  };
  const auto publish = [&](std::uint64_t version, const std::string& waits_for) {
    return cluster.publish_bytes(version, kBytes, {"--wait", waits_for, "--timeout", "60"});
  };
  cluster.start_fleet({"a"}, {"--topology", "chain"});
  publish(1, "1");
  rotate({});
  publish(2, "1");
  rotate({"--authority"});
  cluster.start_worker("b");  // with keys of the new authority
  const std::string source = publish(3, "1");
  for (const char* name : {"a", "b"}) {
    // It may have dialled the new origin after the publication.
    EXPECT_TRUE(cluster.gets(name, 3, source));
    EXPECT_THAT(cluster.run({"verify", cluster.state(name), "--keys", keys.file_of("a")}), Exits(0));
  }
  static_cast<void>(keys.issue("a", 365, true));
  EXPECT_EQ(cluster.end("a", SIGTERM), 0);
  cluster.restart("a");
  EXPECT_EQ(cluster.version("a"), 3u) << "what it has, it keeps under its new keys";
  EXPECT_TRUE(cluster.holds("a", publish(4, "1")));
}

TEST_F(Trust, AWorkerOfAnotherClusterDoesNotGetIn) {
  const ClusterKeys other;
  cluster.start_origin();
  launch_worker(cluster, "stranger", cluster.address("origin"), {"--keys", other.issue("stranger")});
  EXPECT_TRUE(says(cluster, "stranger", "another cluster's"));
  EXPECT_TRUE(logs(cluster, "origin", "another cluster"));
  EXPECT_TRUE(cluster.node("origin", "stranger").is_null());
}

TEST_F(Trust, AWorkerWhoseCertificateExpiresDoesNotGetInAgain) {
  const ClusterKeys past(unix_now_s() - 20 * kDay_s);
  const std::string expired = past.issue("late", 10);
  EXPECT_THAT(cluster.run({"daemon", "--role", "worker", "--origin", "127.0.0.1:1", "--state", cluster.state("late"),
                           "--keys", expired}),
              Exits(1, "expired on", "keys issue late --renew"));
}

TEST_F(Trust, AWorkersKeysDoNotMakeAnOrigin) {
  EXPECT_THAT(
      cluster.run({"daemon", "--role", "origin", "--state", cluster.state("false"), "--keys", keys.issue("false")}),
      Exits(2, "they are for worker false"));
  // Where a worker answers at the origin's address, nobody joins.
  cluster.start_fleet({"a"});
  launch_worker(cluster, "b", cluster.address("a"), {});
  EXPECT_TRUE(says(cluster, "b", "is worker a, not the origin"));
}

TEST_F(Trust, AWorkersNameIsItsCertificates) {
  EXPECT_THAT(cluster.run({"daemon", "--role", "worker", "--origin", "127.0.0.1:1", "--name", "b", "--state",
                           cluster.state("b"), "--keys", keys.issue("a")}),
              Exits(2, "are for a"));
}

TEST_F(Trust, APlainWorkerIsToldWhatItLacks) {
  cluster.start_origin();
  launch_worker(cluster, "plain", cluster.address("origin"), {"--insecure"});
  EXPECT_TRUE(says(cluster, "plain", "start yours with --keys"));
  EXPECT_TRUE(logs(cluster, "origin", "it does not encrypt"));
  EXPECT_TRUE(cluster.node("origin", "plain").is_null());
}

TEST_F(Trust, AWorkerWithKeysDoesNotFallBackToPlain) {
  cluster.start_origin({"--insecure"});
  launch_worker(cluster, "a", cluster.address("origin"), {});
  EXPECT_TRUE(says(cluster, "a", "it does not encrypt"));
  EXPECT_TRUE(cluster.node("origin", "a").is_null());
}

TEST_F(Trust, ANameIsTakenOverByItsOwnKeysOnly) {
  cluster.start_fleet({"a"});
  const std::string first = cluster.address("a");
  const std::string others = keys.issue("a", 365, true);  // a second set of keys for that name
  cluster.process("a").signal(SIGSTOP);                   // silent, but not gone
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const std::string log = cluster.temp().file("impostor.log");
  const Process impostor({WEIGHTCAST_BINARY, "daemon", "--role", "worker", "--origin", cluster.address("origin"),
                          "--state", cluster.state("impostor"), "--keys", others},
                         log, log);
  EXPECT_TRUE(Cluster::eventually([&] { return read_file(log).find("with other keys") != std::string::npos; },
                                  std::chrono::seconds(3)))
      << read_file(log);
  cluster.process("a").signal(SIGCONT);
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.self("a").at("state") != "dialling"; }));
  EXPECT_EQ(cluster.node("origin", "a").at("address"), first);
}

TEST_F(Trust, ARevokedWorkerIsClosedAndDoesNotComeBack) {
  cluster.start_fleet({"a", "b"});
  keys.revoke("a");
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.node("origin", "a").at("state") == "lost"; }));
  EXPECT_TRUE(says(cluster, "a", "as revoked"));
  EXPECT_EQ(cluster.node("origin", "a").at("state"), "lost");
  EXPECT_NE(cluster.node("origin", "b").at("state"), "lost");
}

TEST_F(Trust, ARevokedRelayLosesItsParentAndItsChildAndThePublicationGoesAroundIt) {
  cluster.start_origin({"--topology", "chain", "--uplink", "8mbit"});
  for (const char* name : {"a", "b", "c"}) cluster.start_worker(name, {"--uplink", "8mbit", "--downlink", "8mbit"});
  const std::string source = write_snapshot(cluster.temp().file("m"), 2 * kBytes, 5);  // 12 s on these links
  const std::string out = cluster.temp().file("publish.out");
  Process publishing({WEIGHTCAST_BINARY, "publish", source, "--version", "1", "--state", cluster.state("origin"),
                      "--wait", "1", "--timeout", "120"},
                     out, out);
  // The one in the middle: a worker feeds it, and it feeds a worker.
  std::string parent, relay, child;
  ASSERT_TRUE(Cluster::eventually([&] {
    const auto status = cluster.status("origin");
    for (const auto& node : status.at("nodes")) {
      const std::string above = node.at("parent");
      if (above.empty() || above == "origin") continue;
      const std::string top = cluster.node("origin", above).at("parent");
      if (top.empty() || top == "origin") continue;
      child = node.at("name");
      relay = above;
      parent = top;
    }
    return !child.empty() && cluster.self(child).at("chunks_verified").get<int>() > 0;
  })) << cluster.status("origin");
  keys.revoke(relay);
  const auto revoked_at = std::chrono::steady_clock::now();
  const std::string reason = "the keys of " + relay + " are revoked";
  EXPECT_TRUE(logs(cluster, parent, reason));
  EXPECT_TRUE(logs(cluster, child, reason));
  // The origin looks every 500 ms, and a heartbeat is as long; the rest is for a busy host.
  EXPECT_LT(std::chrono::steady_clock::now() - revoked_at, std::chrono::seconds(8));
  EXPECT_EQ(publishing.wait(std::chrono::seconds(120)), 0) << read_file(out);
  EXPECT_TRUE(cluster.holds(parent, source));
  EXPECT_TRUE(cluster.holds(child, source));
  EXPECT_EQ(cluster.version(relay), 0u) << "it had half of it";
  EXPECT_EQ(cluster.node("origin", relay).at("state"), "lost");
  // What a worker knows it keeps, also where no origin tells it.
  EXPECT_EQ(read_file(cluster.state(child) + "/revoked.pem"), read_file(keys.revoked_file()));
}

/// The command line on a machine without keys, which gets `token` by stdin.
Ran enroll(const Cluster& cluster, const std::string& token, const std::string& origin, const std::string& out,
           Cluster::Flags flags = {}) {
  const std::string file = out + ".token";
  std::filesystem::remove(file);
  EXPECT_TRUE(write_owner_only(file, token).has_value());
  Cluster::Flags all{"keys", "enroll", "--origin", origin, "-o", out, "--token-file", file};
  all.insert(all.end(), flags.begin(), flags.end());
  return cluster.run(all);
}

TEST_F(Trust, AMachineEnrolsByATokenAndJoins) {
  cluster.start_origin({"--enroll", keys.directory()});
  const auto token = [&](Cluster::Flags flags) {
    Cluster::Flags all{"keys", "token", "--dir", keys.directory()};
    all.insert(all.end(), flags.begin(), flags.end());
    const Ran ran = cluster.run(all);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out;
  };
  const std::string once = token({"--name", "new-*"});
  const std::string file = cluster.temp().file("new.pem");
  ASSERT_THAT(enroll(cluster, once, cluster.address("origin"), file, {"--name", "new-1"}), Exits(0));
  EXPECT_THAT(cluster.log("origin"), HasSubstr("worker new-1 is enrolled"));
  EXPECT_THAT(cluster.log("origin"), ::testing::Not(HasSubstr(once.substr(0, 83))));
  // Beside one whose keys were copied, as its parent or its child.
  cluster.start_worker("a");
  cluster.start_worker("new-1", {"--keys", file});
  const std::string source = cluster.publish_bytes(1, kBytes);
  EXPECT_TRUE(cluster.holds("new-1", source));

  // The token is used up, also after the origin's restart.
  const std::string second = cluster.temp().file("second.pem");
  for (const bool restarts : {false, true}) {
    if (restarts) {
      EXPECT_EQ(cluster.end("origin", SIGKILL), 128 + SIGKILL);
      cluster.restart("origin");
    }
    EXPECT_THAT(enroll(cluster, once, cluster.address("origin"), second, {"--name", "new-2"}),
                Exits(1, "the join token does not count"));
    EXPECT_FALSE(std::filesystem::exists(second));
  }
  // Whoever answers in the origin's place gets nothing.
  const std::string other = token({"--name", "new-3"});
  const ClusterKeys others;
  Cluster elsewhere;
  elsewhere.use_keys(others);
  elsewhere.start_origin({"--enroll", others.directory()});
  EXPECT_THAT(enroll(cluster, other, elsewhere.address("origin"), second),
              Exits(1, "not the origin of the token's cluster"));
  EXPECT_EQ(enroll(cluster, other, cluster.address("origin"), second).status, 0) << "it is still to be used";

  // What the origin has made can be revoked like any other.
  EXPECT_THAT(cluster.run({"keys", "revoke", "new-1", "--dir", keys.directory()}), Exits(0));
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.node("origin", "new-1").at("state") == "lost"; }));
  EXPECT_NE(cluster.node("origin", "a").at("state"), "lost");
}

TEST_F(Trust, AnOriginEnrolsNobodyUnlessItIsTold) {
  cluster.start_origin();
  const Ran token = cluster.run({"keys", "token", "--dir", keys.directory(), "--name", "new"});
  ASSERT_EQ(token.status, 0) << token.err;
  EXPECT_THAT(enroll(cluster, token.out, cluster.address("origin"), cluster.temp().file("new.pem")),
              Exits(1, "--enroll"));
}

TEST_F(Trust, EachRefusalIsCountedAndLogged) {
  const ClusterKeys other;
  cluster.start_fleet({"a"}, {"--enroll", keys.directory()});
  const auto refused = [&](const std::string& node, const char* reason) {
    return cluster.self(node).at("refused").value(reason, 0u);
  };
  const auto counts = [&](const std::string& node, const char* reason) {
    return Cluster::eventually([&] { return refused(node, reason) > 0; });
  };
  EXPECT_EQ(cluster.self("origin").at("refused"), nlohmann::json::object());
  launch_worker(cluster, "stranger", cluster.address("origin"), {"--keys", other.issue("stranger")});
  EXPECT_TRUE(counts("origin", "handshake"));
  EXPECT_TRUE(counts("stranger", "handshake")) << "nor does it take that origin for its own";
  EXPECT_TRUE(logs(cluster, "origin", "refused, handshake: 127.0.0.1:"));
  launch_worker(cluster, "lost", cluster.address("a"), {});
  EXPECT_TRUE(counts("lost", "identity"));
  EXPECT_TRUE(logs(cluster, "lost", "refused, identity: worker a at 127.0.0.1:"));
  const std::string guess =
      to_text(JoinToken{.authority = key_id(X509_get0_pubkey(keys.origin().authority.get()))}).text();
  EXPECT_EQ(enroll(cluster, guess, cluster.address("origin"), cluster.temp().file("x.pem")).status, 1);
  EXPECT_TRUE(counts("origin", "enrolment"));
  keys.revoke("a");
  EXPECT_TRUE(counts("origin", "revoked"));
  EXPECT_TRUE(logs(cluster, "origin", "refused, revoked: worker a at 127.0.0.1:"));
  EXPECT_TRUE(counts("origin", "certificate")) << "it dials again";
  EXPECT_TRUE(logs(cluster, "origin", "refused, certificate: 127.0.0.1:"));
}

TEST_F(Trust, LogAndStatusWarnBeforeKeysExpire) {
  cluster.start_origin();
  static_cast<void>(keys.issue("soon", 20));
  cluster.start_worker("soon");
  cluster.start_worker("later");
  EXPECT_TRUE(logs(cluster, "soon", "the certificate of soon expires on"));
  EXPECT_THAT(cluster.log("later"), ::testing::Not(HasSubstr("expires on")));
  const auto expires = [&](const char* asked, const char* of) {
    return cluster.node(asked, of).at("keys_expire_unix_s").get<std::int64_t>() - unix_now_s();
  };
  EXPECT_NEAR(double(expires("soon", "soon")), 20.0 * kDay_s, 1000);
  EXPECT_NEAR(double(expires("origin", "soon")), 20.0 * kDay_s, 1000);
  EXPECT_NEAR(double(expires("origin", "origin")), 365.0 * kDay_s, 1000);
  const Ran status = cluster.run({"status", "--state", cluster.state("origin")});
  EXPECT_THAT(status.out, HasSubstr("its keys expire on"));
  EXPECT_EQ(status.out.find("its keys expire on"), status.out.rfind("its keys expire on")) << "one of three";
}

TEST_F(Trust, KeysThatOthersCanReadAreRefused) {
  const std::string file = keys.issue("a");
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  EXPECT_THAT(cluster.run({"daemon", "--role", "worker", "--origin", "127.0.0.1:1", "--state", cluster.state("a"),
                           "--keys", file}),
              Exits(1, "chmod 600"));
}

TEST_F(Trust, WithoutKeysNothingLeavesLoopback) {
  const std::string state = cluster.state("x");
  const auto refuses = [&](Cluster::Flags flags) {
    Cluster::Flags all{"daemon", "--state", state};
    all.insert(all.end(), flags.begin(), flags.end());
    EXPECT_THAT(cluster.run(all), Exits(2, "--keys", "--insecure"));
  };
  refuses({"--role", "origin", "--listen", "0.0.0.0:0"});
  refuses({"--role", "worker", "--listen", "127.0.0.1:0", "--origin", "192.0.2.7:7400"});
  EXPECT_FALSE(std::filesystem::exists(state));
}

TEST_F(Trust, SecretsAreInNeitherLogsNorStatus) {
  cluster.start_origin({"--log-level", "info"});
  cluster.start_worker("a", {"--log-level", "info"});
  for (const char* name : {"origin", "a"}) {
    EXPECT_THAT(cluster.log(name), ::testing::Not(HasSubstr("PRIVATE KEY")));
    EXPECT_THAT(cluster.status(name).dump(), ::testing::Not(HasSubstr("PRIVATE KEY")));
  }
}

UniqueFd connect_to(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  const auto colon = address.rfind(':');
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
  ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return fd;
}

TEST_F(Trust, HalfOpenConnectionsAreClosedAndHoldNothingUp) {
  cluster.start_fleet({"a"});
  std::vector<UniqueFd> half_open;
  for (int i = 0; i < 300; ++i) {
    half_open.push_back(connect_to(cluster.address("origin")));
    // Some say nothing, some begin a handshake.
    if (i % 2 == 0) (void)!::send(half_open.back().get(), "\x16\x03\x01\x02\x00\x01", 6, MSG_NOSIGNAL);
  }
  const std::string source = cluster.publish_bytes(1, kBytes);
  cluster.start_worker("b");
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.holds("b", source); }));
  // Each is closed by the other end within its bound.
  for (const UniqueFd& fd : half_open) {
    pollfd ends{.fd = fd.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&ends, 1, 30'000), 1);
    char byte = 0;
    const auto got = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT);
    EXPECT_TRUE(got <= 0 || byte == 0x15) << "an end, or an alert before it";
  }
}

}  // namespace
}  // namespace weightcast
