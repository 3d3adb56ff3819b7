// What workers accept, and what a version on disk proves: real daemons, whose origin or disk is not to be believed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "base/files/posix_file_system.h"
#include "tests/damage_file.h"
#include "tests/e2e/fleet/cluster.h"
#include "transport/io/net/socket_network.h"
#include "transport/io/uv_loop.h"
#include "transport/node/node.h"
#include "transport/node/payload/signed_manifests.h"
#include "transport/security/manifest_signature.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = 2'000'000;

class Signed : public KeyedFleet {
 protected:
  std::string snapshot(unsigned seed) {
    return write_snapshot(cluster.temp().file(std::to_string(seed) + ".safetensors"), kBytes, seed);
  }
  testing::AssertionResult published(unsigned version) {
    const Ran ran = cluster.publish(snapshot(version), version, {"--wait", "1", "--timeout", "60"});
    if (ran.status == 0 && cluster.version("a") == version) return testing::AssertionSuccess();
    return testing::AssertionFailure() << ran.err << cluster.log("a");
  }
  [[nodiscard]] Ran verify(const std::string& directory, const std::string& file) const {
    return cluster.run({"verify", directory, "--keys", file});
  }
  [[nodiscard]] Ran verify(const std::string& name) const { return verify(cluster.state(name), keys.file_of("a")); }

  /// Whether worker "a" refuses a manifest and says that; then it has no version.
  testing::AssertionResult refuses(const std::string& why) {
    const auto refused = [&] {
      const auto self = cluster.self("a");
      return !self.is_null() && self.at("manifests_refused") > 0 &&
             self.at("last_error").get<std::string>().find(why) != std::string::npos;
    };
    if (!Cluster::eventually(refused, std::chrono::seconds(20))) {
      return testing::AssertionFailure() << "nothing is refused with " << why << ": " << cluster.log("a");
    }
    if (cluster.version("a") == 0) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "it is installed all the same";
  }
};

TEST_F(Signed, WhatAWorkerInstalledItCanProve) {
  cluster.start_fleet({"a"});
  ASSERT_TRUE(published(1));
  ASSERT_TRUE(published(2));
  for (const char* name : {"a", "origin"}) {
    EXPECT_THAT(verify(name), Prints(HasSubstr("are version 2 of run")));
  }
  // Also after a restart, and what is there is not fetched again.
  static_cast<void>(cluster.end("a", SIGKILL));
  cluster.restart("a");
  EXPECT_EQ(cluster.version("a"), 2u);
  EXPECT_EQ(cluster.self("a").at("bytes_received"), 0);
  EXPECT_EQ(verify("a").status, 0);

  const ClusterKeys others;
  EXPECT_THAT(verify(cluster.state("a"), others.issue("a")), Exits(1, "another cluster's"));

  const std::string file = cluster.state("a") + "/current/model.safetensors";
  overwrite(file, kBytes / 2, "!");
  EXPECT_THAT(verify(fs::canonical(cluster.state("a") + "/current"), keys.file_of("a")),
              Exits(1, "not those that were published"));
}

TEST_F(Signed, WorkerOfOneModelRefusesAnother) {
  cluster.start_origin();  // which says of no model that it is not its own
  cluster.start_worker("a", {"--model", "right"});
  static_cast<void>(cluster.publish(snapshot(1), 1, {}));
  EXPECT_TRUE(refuses("this worker was told --model right"));
}

TEST_F(Signed, WorkerRefusesAVersionThatIsOlderThanItWasTold) {
  cluster.start_origin();
  static_cast<void>(cluster.publish(snapshot(1), 1, {}));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  cluster.start_worker("a", {"--version-age-max", "1"});
  EXPECT_TRUE(refuses("--version-age-max"));
  // One that is new is taken.
  EXPECT_EQ(cluster.publish(snapshot(2), 2, {"--wait", "1", "--timeout", "60"}).status, 0);
  EXPECT_EQ(cluster.version("a"), 2u);
}

// An origin's state of some time ago, under the same keys: everything in it is signed.
TEST_F(Signed, WorkerRefusesWhatIsReplayed) {
  cluster.start_origin({"--versions-in", "disk"});
  cluster.start_worker("a", {"--versions-in", "disk"});
  ASSERT_TRUE(published(1));
  EXPECT_EQ(cluster.end("origin", SIGTERM), 0);
  const std::string state = cluster.state("origin"), old = cluster.temp().file("old");
  fs::copy(state, old, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  cluster.restart("origin");
  ASSERT_TRUE(published(2));
  ASSERT_TRUE(Cluster::eventually(
      [&] { return read_file(cluster.state("a") + "/accepted").find(" 2\n") != std::string::npos; }));
  for (const char* name : {"origin", "a"}) EXPECT_EQ(cluster.end(name, SIGTERM), 0);
  fs::remove_all(state);
  fs::rename(old, state);
  // The worker's disk has lost its versions, too, so that it would take any.
  for (const char* part : {"versions", "records", "current", "patches"})
    fs::remove_all(cluster.state("a") + "/" + part);
  cluster.restart("origin");
  cluster.restart("a");
  EXPECT_TRUE(refuses("this worker has had version 2"));
  ASSERT_TRUE(published(3));
}

TEST_F(Signed, WhatCameWithoutKeysStaysInUseUntilAVersionIsProven) {
  Cluster plain;
  plain.start_fleet({"a"});
  const std::string first = snapshot(1);
  ASSERT_EQ(plain.publish(first, 1, {"--wait", "1", "--timeout", "60"}).status, 0);
  ASSERT_TRUE(Cluster::eventually([&] { return plain.version("a") == 1; }));
  const std::string file = keys.issue("a");
  EXPECT_THAT(plain.run({"verify", plain.state("a"), "--keys", file}).err, HasSubstr("it is not signed"));
  for (const char* name : {"a", "origin"}) EXPECT_EQ(plain.end(name, SIGTERM), 0);

  plain.use_keys(keys);
  plain.restart("origin");
  plain.restart("a");
  EXPECT_TRUE(plain.holds("a", first)) << "engines go on with it";
  // The origin vouches for it now, and sends it once more.
  EXPECT_TRUE(Cluster::eventually([&] {
    return plain.run({"verify", plain.state("a"), "--keys", file}).status == 0;
  })) << plain.log("a");
  EXPECT_TRUE(plain.holds("a", first));
}

TEST_F(Signed, VersionsOfAKeyThatIsRevokedEndWhereTheyAre) {
  cluster.start_fleet({"a"});
  ASSERT_TRUE(published(1));
  const int pid = cluster.process("a").pid();
  // As after the theft of an origin: all keys of that name end, the one that signs, too.
  keys.revoke("origin");
  const auto ended = [&] {
    const auto self = cluster.self("a");
    return !self.is_null() && self.at("earlier_run").get<bool>();
  };
  EXPECT_TRUE(Cluster::eventually(ended)) << cluster.status("a") << cluster.log("a");
  EXPECT_THAT(cluster.log("a"), HasSubstr("version 1: the key that signed it is revoked"));
  EXPECT_EQ(cluster.process("a").pid(), pid) << "without a restart";
  EXPECT_TRUE(cluster.holds("a", cluster.temp().file("1.safetensors"))) << "engines go on with it";
  EXPECT_THAT(cluster.log("a"), ::testing::Not(HasSubstr("version 1: version 1:")));
}

/// Signs what it is told to with a key that is not for that: a worker's, which a thief may have.
class StolenKey final : public ManifestSigner {
 public:
  explicit StolenKey(const NodeKeys& keys)
      : key_((static_cast<void>(EVP_PKEY_up_ref(keys.key.get())), keys.key.get())),
        certificate_(to_der(keys.certificate.get(), {})) {}
  [[nodiscard]] ManifestSignature sign(std::string_view statement) const override {
    return {sign_statement(key_.get(), statement), certificate_};
  }

 private:
  const UniqueKey key_;
  const std::string certificate_;
};

/// An origin in this process: its connections are those of the real one, its manifests are signed as the test says.
class FalseOrigin {
 public:
  FalseOrigin(const ClusterKeys& keys, std::string state, std::shared_ptr<const ManifestSigner> signer)
      : network_(loop_, Rate{}, Rate{}, {}, TlsContext::make(keys.origin())) {
    DaemonConfig config;
    config.role = Role::kOrigin;
    config.name = "origin";
    config.state = std::move(state);
    NodeEnvironment environment{loop_, network_, files_,
                                [this](StoreOptions options) { return Store::open(loop_, files_, std::move(options)); },
                                [] { return std::uint64_t{0xbad}; }};
    environment.signer = std::move(signer);
    auto opened = open_node(config, environment);
    EXPECT_TRUE(opened.has_value());
    node_ = std::move(*opened);
    address_ = node_->endpoint().to_string();
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~FalseOrigin() {
    loop_.post([this] { loop_.stop(); });
    thread_.join();
    node_.reset();
  }
  FalseOrigin(const FalseOrigin&) = delete;
  FalseOrigin& operator=(const FalseOrigin&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  PosixFileSystem files_;
  UvLoop loop_;
  SocketNetwork network_;
  std::unique_ptr<Node> node_;
  std::string address_;
  std::thread thread_;
};

TEST_F(Signed, WorkerRefusesManifestsThatTheSigningKeyHasNotSigned) {
  struct Case {
    std::shared_ptr<const ManifestSigner> signer;
    const char* why;
  };
  const std::vector<Case> cases{{nullptr, "it is not signed"},
                                {std::make_shared<StolenKey>(keys.worker("thief")), "not for signing manifests"}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.why);
    const std::string state = cluster.temp().file("false " + std::string(one.why));
    const FalseOrigin origin(keys, state, one.signer);
    fs::remove_all(cluster.state("a"));
    cluster.launch("a", {"--role", "worker", "--origin", origin.address()});
    ASSERT_TRUE(Cluster::eventually([&] {
      const auto self = cluster.self("a");
      return !self.is_null() && self.at("state") != "dialling";
    })) << cluster.log("a");
    static_cast<void>(cluster.run({"publish", snapshot(1), "--version", "1", "--state", state}));
    EXPECT_TRUE(refuses(one.why));
    EXPECT_EQ(cluster.end("a", SIGTERM), 0);
  }
}

}  // namespace
}  // namespace weightcast
