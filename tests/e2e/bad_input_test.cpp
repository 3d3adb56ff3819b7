// What goes wrong on a bad day, and what the person or the daemon is told about it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/settings/endpoint.h"
#include "proto/frame.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/transport/http/raw_client.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

struct OneWorker : testing::Test {
  Cluster cluster;
  void SetUp() override { cluster.start_fleet({"a"}); }

  /// Publishes a file of these bytes, which must be refused in one line that says `why`; nothing of it may remain.
  void expect_refused(const std::string& bytes, const std::string& why) {
    const std::string path = cluster.temp().write("bad.safetensors", bytes);
    const Ran ran = cluster.publish(path, 1);
    EXPECT_THAT(ran, Exits(1, why)) << why;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(cluster.version("origin"), 0u);
    EXPECT_FALSE(std::filesystem::exists(cluster.state("origin") + "/current"));
  }
  void expect_still_works(std::uint64_t version = 1) {
    const std::string source = write_snapshot(cluster.temp().file("good.safetensors"), 10'000, 1);
    EXPECT_THAT(cluster.publish(source, version), Exits(0));
    EXPECT_TRUE(cluster.holds("a", source));
  }
};

// The tests of safetensors have all headers that are refused.
TEST_F(OneWorker, SnapshotsThatAreNotWhatTheySayAreRefused) {
  const std::string good = safetensors_bytes(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "abcd");
  expect_refused("", "bad.safetensors");
  expect_refused(good.substr(0, good.size() - 1), "bad.safetensors");
  expect_refused(safetensors_bytes("not json"), "header");
  expect_still_works();
}

TEST_F(OneWorker, MissingPathIsRefused) {
  EXPECT_THAT(cluster.publish(cluster.temp().file("nothing-here"), 1), Exits(1, "nothing-here"));
}

TEST_F(OneWorker, WeightsThatAreNotFiniteNeedConsent) {
  const std::string nan("\x00\x00\xc0\x7f", 4);
  const std::string bytes = safetensors_bytes(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", nan);
  expect_refused(bytes, "--allow-nonfinite");
  const std::string file = cluster.temp().file("bad.safetensors");
  EXPECT_THAT(cluster.publish(file, 1, {"--wait", "1", "--allow-nonfinite"}), Exits(0));
  EXPECT_TRUE(cluster.holds("a", file));
}

TEST_F(OneWorker, WeightsThatTurnOutNotToBeFiniteAreTakenBackFromWhoHasSomeOfThem) {
  std::string bytes(64 * kMiB, '\0');
  bytes.replace(bytes.size() - 4, 4, std::string("\x00\x00\xc0\x7f", 4));
  const std::string header =
      fmt::format(R"({{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", bytes.size() / 4, bytes.size());
  for (int i = 0; i < 3; ++i) expect_refused(safetensors_bytes(header, bytes), "--allow-nonfinite");
  expect_still_works();
  EXPECT_THAT(cluster.log("a"), HasSubstr("the origin withdrew it")) << "it had begun to receive them";
}

TEST_F(OneWorker, AnotherModelNeedsConsentAndFilesThatAreLostAreTold) {
  const std::string model = write_sharded_snapshot(cluster.temp().file("model"), 1000, 2, 1);
  std::ofstream(model + "/config.json") << "{}";
  ASSERT_EQ(cluster.publish(model, 1).status, 0);
  const std::string other = write_snapshot(cluster.temp().file("other.safetensors"), 1000, 2);
  EXPECT_THAT(cluster.publish(other, 2),
              Exits(1,
                    "its tensors are not those of version 1: 'weight' is new, 'layers.0.weight' is gone, "
                    "'layers.1.weight' is gone; publish with --new-model"));
  // Another layout of the same tensors is the same model.
  std::filesystem::remove(model + "/config.json");
  const Ran lost = cluster.publish(model, 2);
  EXPECT_THAT(lost, Exits(0, "version 2 goes without files that version 1 had: config.json"));
  EXPECT_EQ(nlohmann::json::parse(lost.out).at("notice"),
            "version 2 goes without files that version 1 had: config.json");
  EXPECT_THAT(cluster.log("origin"), HasSubstr("goes without files"));
  EXPECT_THAT(cluster.publish(other, 3, {"--wait", "1", "--new-model"}), Exits(0));
  EXPECT_TRUE(cluster.holds("a", other));
}

TEST_F(OneWorker, VersionsMustGrow) {
  const std::string source = cluster.publish_bytes(5, 1000);
  for (const std::uint64_t version : {5, 4, 0}) {
    EXPECT_THAT(cluster.publish(source, version), Exits(1, std::to_string(version))) << version;
  }
  EXPECT_EQ(cluster.version("a"), 5u);
}

TEST_F(OneWorker, WorkerDoesNotPublishAndSaysWhoDoes) {
  const std::string source = write_snapshot(cluster.temp().file("model.safetensors"), 1000, 1);
  const Ran ran = cluster.run({"publish", source, "--version", "1", "--state", cluster.state("a")});
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("worker"), HasSubstr(cluster.address("origin"))));
}

TEST_F(OneWorker, PathThatIsNotUtf8IsAnErrorInOneLine) {
  const Ran ran = cluster.publish(cluster.temp().file("\xff\xfe"), 1);
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  expect_still_works();
}

// ---- daemons that cannot start, or not as they should

TEST_F(OneWorker, PortThatIsTakenIsNamed) {
  cluster.launch("second", {"--role", "origin", "--listen", cluster.address("origin")});
  EXPECT_EQ(cluster.process("second").wait(60s), 1);
  EXPECT_THAT(cluster.log("second"), HasSubstr(cluster.address("origin")));
}

TEST_F(OneWorker, StateDirectoryOfAnotherDaemonIsLeftAlone) {
  EXPECT_THAT(cluster.run({"daemon", "--role", "worker", "--origin", cluster.address("origin"), "--insecure", "--state",
                           cluster.state("a")}),
              Exits(1, cluster.state("a"), std::to_string(cluster.process("a").pid())));
  EXPECT_THAT(cluster.run({"daemon", "--role", "origin", "--insecure", "--state", cluster.state("a")}),
              Exits(2, cluster.state("a"), "it is the directory of a worker"));
  expect_still_works();
}

TEST(StateDirectory, ThatCannotBeMadeIsNamed) {
  Cluster cluster;
  const std::string file = cluster.temp().write("file", "in the way");
  EXPECT_THAT(cluster.run({"daemon", "--role", "origin", "--insecure", "--state", file + "/state"}), Exits(1, file));
}

TEST(Worker, KeepsDiallingAnOriginThatIsNotThereAndSaysSo) {
  Cluster cluster;
  cluster.start_origin();
  const std::string address = cluster.address("origin");
  ASSERT_EQ(cluster.end("origin", SIGTERM), 0);
  cluster.launch("a", {"--role", "worker", "--origin", address});
  ASSERT_TRUE(Cluster::eventually([&] {
    const auto self = cluster.self("a");
    return !self.is_null() && self.at("last_error").get<std::string>().find(address) != std::string::npos;
  }));
  EXPECT_EQ(cluster.self("a").at("state"), "dialling");
  cluster.restart("origin");
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.self("a").at("state") == "idle"; }));
  EXPECT_EQ(cluster.self("a").at("last_error"), "");
}

// ---- peers that do not keep to the protocol

/// A connection to a daemon, with nothing of ours on it.
RawClient dial(const std::string& address) { return RawClient(Endpoint::parse(address).value().port); }

std::string frame_header(std::uint32_t body_bytes) {
  FrameHeader header;
  header.body_bytes = body_bytes;
  const FrameHeaderBytes bytes = encode_frame_header(header);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(OneWorker, PeersThatSendNonsenseAreClosedAndTheDaemonGoesOn) {
  for (const char* name : {"origin", "a"}) {
    SCOPED_TRACE(name);
    RawClient garbage = dial(cluster.address(name));
    garbage.say(std::string(4096, '\x5a'));
    EXPECT_TRUE(garbage.ended());

    RawClient http = dial(cluster.address(name));
    http.say("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a\r\n\r\n");
    EXPECT_TRUE(http.ended());

    RawClient huge = dial(cluster.address(name));
    huge.say(frame_header(0xffffffff));
    EXPECT_TRUE(huge.ended());

    RawClient not_a_message = dial(cluster.address(name));
    not_a_message.say(frame_header(4) + "\xff\xff\xff\xff");
    EXPECT_TRUE(not_a_message.ended());

    RawClient half = dial(cluster.address(name));
    half.say(frame_header(100).substr(0, 11));
  }
  expect_still_works();
}

TEST_F(OneWorker, PeersThatNeverFinishAFrameOrSayNothingAreClosedInTime) {
  RawClient silent = dial(cluster.address("origin"));
  RawClient endless = dial(cluster.address("origin"));
  endless.say(frame_header(1'000'000) + "the start of something");
  RawClient silent_at_worker = dial(cluster.address("a"));
  expect_still_works();
  EXPECT_TRUE(silent.ended());
  EXPECT_TRUE(endless.ended());
  EXPECT_TRUE(silent_at_worker.ended());
}

TEST_F(OneWorker, ManyPeersThatSayNothingDoNotKeepOthersOut) {
  std::vector<RawClient> peers;
  for (int i = 0; i < 200; ++i) peers.push_back(dial(cluster.address("origin")));
  cluster.start_worker("b");
  expect_still_works();
  EXPECT_TRUE(cluster.holds("b", cluster.temp().file("good.safetensors")));
}

TEST_F(OneWorker, NonsenseOnTheLocalSocketIsClosedAndTheDaemonGoesOn) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::strncpy(to.sun_path, (cluster.state("origin") + "/api.sock").c_str(), sizeof to.sun_path - 1);
  ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const std::string garbage(1000, 'x');
  EXPECT_EQ(::send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL), ssize_t(garbage.size()));
  char buffer[64];
  EXPECT_LE(::recv(fd, buffer, sizeof buffer, 0), 0);
  ::close(fd);
  expect_still_works();
}

// ---- disks

/// A worker's state directory on a disk of `mib` MiB. Needs to be root, and to be allowed to mount.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, unsigned mib) : path_(path) {
    ::mkdir(path.c_str(), 0700);
    mounted_ = ::mount("tmpfs", path.c_str(), "tmpfs", 0, fmt::format("size={}m", mib).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  [[nodiscard]] bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST(FullDisk, WorkerSaysSoKeepsServingAndRecoversWhenThereIsRoom) {
  Cluster cluster;
  const SmallDisk disk(cluster.state("a"), 24);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  cluster.start_origin();
  cluster.start_worker("a", {"--versions-in", "disk"});
  cluster.start_worker("b");
  const std::string first = cluster.publish_bytes(1, 4 * kMiB);

  const std::string filler = cluster.state("a") + "/filler";
  write_snapshot(filler, 16 * kMiB, 2);
  const std::string second = write_snapshot(cluster.temp().file("second.safetensors"), 6 * kMiB, 3);
  EXPECT_THAT(cluster.publish(second, 2, {"--wait", "1", "--timeout", "3", "--new-model"}), Exits(1));
  EXPECT_TRUE(cluster.gets("b", 2, second)) << "the others are not held up";
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.node("origin", "a").at("state") == "failed"; }));
  EXPECT_TRUE(cluster.holds("a", first)) << "it keeps what it has";
  EXPECT_THAT(cluster.self("a").at("last_error").get<std::string>(), HasSubstr("version 2"));
  EXPECT_THAT(cluster.node("origin", "a").at("last_error").get<std::string>(), HasSubstr("room"));

  std::filesystem::remove(filler);
  EXPECT_TRUE(cluster.gets("a", 2, second));
}

TEST(FullDisk, AVersionThatFindsNoRoomInMemoryIsRefusedAndTheOneBeforeStays) {
  Cluster cluster;
  const SmallDisk memory(cluster.memory(), 24);
  if (!memory.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  cluster.start_fleet({"a"}, {"--versions-in", "disk"});
  const std::string first = cluster.publish_bytes(1, 4 * kMiB);
  EXPECT_EQ(cluster.self("a").at("versions_in"), "memory") << cluster.log("a");
  const std::string second = write_snapshot(cluster.temp().file("second.safetensors"), 24 * kMiB, 2);
  EXPECT_EQ(cluster.publish(second, 2, {"--wait", "1", "--timeout", "2", "--new-model"}).status, 1);
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.node("origin", "a").at("state") == "failed"; }));
  EXPECT_THAT(cluster.self("a").at("last_error").get<std::string>(), HasSubstr("start with --versions-in disk"));
  EXPECT_TRUE(cluster.holds("a", first));
  EXPECT_EQ(cluster.end("a", SIGTERM), 0);
  cluster.start_worker("a", {"--versions-in", "disk"});
  EXPECT_TRUE(cluster.gets("a", 2, second));
}

TEST(FullDisk, OriginRefusesThePublicationAndGoesOn) {
  Cluster cluster;
  const SmallDisk disk(cluster.state("origin"), 16);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  cluster.start_fleet({"a"}, {"--versions-in", "disk"});
  const std::string large = write_snapshot(cluster.temp().file("large.safetensors"), 32 * kMiB, 1);
  EXPECT_THAT(cluster.publish(large, 1), Exits(1, "room"));
  const std::string small = write_snapshot(cluster.temp().file("small.safetensors"), kMiB, 2);
  EXPECT_EQ(cluster.publish(small, 1).status, 0) << "the version was never taken";
}

}  // namespace
}  // namespace weightcast
