// Which workers serve, by command: activate, release, and a program that provisions.
#include <gmock/gmock.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/e2e/fleet/cluster.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using testing::HasSubstr;

struct ServeTest : testing::Test {
  Cluster cluster;

  std::string state_of(const std::string& worker) {
    const nlohmann::json node = cluster.node("origin", worker);
    return node.is_null() ? "" : node.at("state").get<std::string>();
  }
  bool publish(std::uint64_t version) {
    const std::string path = write_snapshot(cluster.temp().file("snapshot"), 100'000, static_cast<unsigned>(version));
    const Ran ran = cluster.publish(path, version);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.status == 0;
  }
  bool gets(const std::string& worker, std::uint64_t version) {
    return Cluster::eventually([&] { return cluster.version(worker) == version; });
  }
};

TEST_F(ServeTest, CommandsSayWhoGetsVersions) {
  cluster.start_fleet({"w1"});
  cluster.start_worker("w2", {"--standby"});
  ASSERT_TRUE(publish(1));
  EXPECT_EQ(state_of("w2"), "standby");
  ASSERT_THAT(cluster.run({"activate", "w2", "--state", cluster.state("origin")}),
              Prints("w2 gets versions from now on\n"));
  EXPECT_TRUE(gets("w2", 1)) << "an activated worker catches up";
  ASSERT_THAT(cluster.run({"release", "w1", "--state", cluster.state("origin")}),
              Prints("w1 is on standby: it gets no versions until it is activated\n"));
  ASSERT_TRUE(publish(2));
  EXPECT_TRUE(gets("w2", 2));
  EXPECT_EQ(cluster.version("w1"), 1u);
  EXPECT_EQ(state_of("w1"), "standby");
}

TEST_F(ServeTest, CommandsThatCannotBeFollowedSayWhy) {
  cluster.start_fleet({"w1"});
  EXPECT_THAT(cluster.run({"release", "w2", "--state", cluster.state("origin")}),
              Exits(1, "'w2' is no worker that this origin has heard of; the nearest is 'w1'"));
  EXPECT_THAT(cluster.run({"release", "w1", "--state", cluster.state("w1")}),
              Exits(1, "this node is a worker; activate and release on the origin"));
}

TEST_F(ServeTest, AForgottenWorkerIsGoneFromStatusAndAfterARestart) {
  const ClusterKeys keys;
  cluster.use_keys(keys);
  cluster.start_fleet({"w1", "w2"});
  ASSERT_TRUE(publish(1));
  const auto forget = [&] { return cluster.run({"forget", "w2", "--state", cluster.state("origin")}); };
  EXPECT_THAT(forget().err, HasSubstr("w2 is connected"));
  keys.revoke("w2");
  EXPECT_TRUE(Cluster::eventually([&] { return state_of("w2") == "lost"; }));
  ASSERT_THAT(forget(), Prints("w2 is forgotten, and what was held against it\n"));
  EXPECT_EQ(state_of("w2"), "");
  const std::string records = cluster.state("origin") + "/peers.json";
  EXPECT_TRUE(Cluster::eventually([&] {
    const std::string text = read_file(records);
    return text.find("w1") != std::string::npos && text.find("w2") == std::string::npos;
  })) << read_file(records);
  EXPECT_EQ(cluster.end("origin", SIGTERM), 0);
  cluster.restart("origin");
  EXPECT_TRUE(Cluster::eventually([&] { return state_of("w1") == "idle"; })) << state_of("w1");
  EXPECT_EQ(state_of("w2"), "");
}

TEST_F(ServeTest, TheLocalSocketIsGivenToTheApiGroup) {
  const group* const own = ::getgrgid(::getegid());
  if (own == nullptr) GTEST_SKIP() << "this user's group has no name";
  cluster.start_origin({"--api-group", own->gr_name});
  struct stat info {};
  ASSERT_EQ(::stat((cluster.state("origin") + "/api.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  EXPECT_EQ(info.st_gid, ::getegid());
  EXPECT_THAT(cluster.run({"daemon", "--role", "origin", "--insecure", "--state", cluster.temp().file("x"),
                           "--api-group", "no-such-group"}),
              Exits(1, "--api-group no-such-group: this host has no such group"))
      << "a directory service may know it later";
}

TEST_F(ServeTest, AWorkerThatIsStoppedIsNoWarning) {
  cluster.start_fleet({"w1"});
  EXPECT_EQ(cluster.end("w1", SIGTERM), 0);
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.log("origin").find("lost worker w1") != std::string::npos; }));
  EXPECT_THAT(cluster.log("origin"), testing::Not(HasSubstr("warning")));
}

TEST_F(ServeTest, WhileAProgramProvisionsNoStandbyWorkerIsPromoted) {
  cluster.start_fleet({"w1", "w2", "w3"});
  cluster.start_worker("s", {"--standby"});
  ASSERT_TRUE(publish(1));
  {
    wc::Client provisioner(cluster.state("origin"));
    provisioner.serve("", false, true);
    cluster.end("w1", SIGKILL);
    ASSERT_TRUE(Cluster::eventually([&] { return state_of("w1") == "lost"; }));
    EXPECT_EQ(state_of("s"), "standby");
  }
  // The origin sees the end of the connection before it sees that of w2, or soon after: so it may take a second loss.
  cluster.end("w2", SIGKILL);
  ASSERT_TRUE(Cluster::eventually([&] { return state_of("w2") == "lost"; }));
  cluster.end("w3", SIGKILL);
  EXPECT_TRUE(gets("s", 1));
}

}  // namespace
}  // namespace weightcast
