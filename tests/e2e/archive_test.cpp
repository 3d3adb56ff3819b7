// Archives beside real daemons: processes that are killed, and a server that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/e2e/patch/patch_fixture.h"
#include "tests/transport/archive/object_server.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Fault = ObjectServer::Fault;

class ArchiveTest : public KeyedFleet {
 protected:
  /// Publishes one more version, and keeps its file.
  void publish() {
    if (!published.empty()) model.step();
    const std::uint64_t version = published.size() + 1;
    ASSERT_THAT(cluster.publish(model.path(), version, {}), Exits(0));
    published.push_back(cluster.temp().file("published-" + std::to_string(version)));
    fs::copy_file(model.path(), published.back());
  }
  [[nodiscard]] Process start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), WEIGHTCAST_BINARY);
    return Process(arguments, cluster.temp().file("out.log"), cluster.temp().file("err.log"));
  }
  [[nodiscard]] std::string said() const { return read_file(cluster.temp().file("out.log")) + errors(); }
  [[nodiscard]] std::string errors() const { return read_file(cluster.temp().file("err.log")); }
  [[nodiscard]] Ran fetch(const std::string& place, std::uint64_t version) const {
    return cluster.run({"fetch", "--from", place, "--version", std::to_string(version), "--keys", key_file, "-o",
                        cluster.temp().file("fetched")});
  }
  testing::AssertionResult is_there(const std::string& place, std::uint64_t version) const {
    const Ran ran = fetch(place, version);
    if (ran.status != 0) return testing::AssertionFailure() << ran.err;
    const std::string path = cluster.temp().file("fetched");
    const bool right = read_file(path + "/model.safetensors") == read_file(published.at(version - 1));
    fs::remove_all(path);
    if (ran.out.find(": proven") == std::string::npos) return testing::AssertionFailure() << ran.out;
    return right ? testing::AssertionSuccess() : testing::AssertionFailure() << "other bytes";
  }
  std::string key_file = keys.issue("archivist");
  Model model{cluster.temp().file("model.safetensors"), 1'000'000};
  std::vector<std::string> published;
  ObjectServer server;
};

class ArchiveBeside : public ArchiveTest, public testing::WithParamInterface<const char*> {};

// Each version that was ever published comes back, whatever the node has forgotten since.
TEST_P(ArchiveBeside, ADaemonKeepsEachVersion) {
  cluster.start_origin({"--versions-in", GetParam(), "--keep", "1", "--anchor-interval", "3"});
  Process archive =
      start({"archive", "--state", cluster.state("origin"), "--to", server.url(), "--every", "3", "--follow"});
  for (std::uint64_t version = 1; version <= 8; ++version) {
    publish();
    const std::string line = "to " + std::to_string(version) + ":";
    ASSERT_TRUE(Cluster::eventually([&] {
      return said().find(version == 1 ? "version 1:" : line) != std::string::npos;
    })) << said();
  }
  ASSERT_TRUE(Cluster::eventually([&] { return said().find("\nversion ") != std::string::npos; }))
      << "one more whole version: " << said();
  archive.signal(SIGTERM);
  ASSERT_TRUE(archive.wait(std::chrono::seconds(30)));
  EXPECT_EQ(errors(), "");
  EXPECT_EQ(cluster.end("origin", SIGTERM), 0);
  for (std::uint64_t version = 1; version <= 8; ++version) EXPECT_TRUE(is_there(server.url(), version)) << version;
  EXPECT_THAT(fetch(server.url(), 9).err, HasSubstr("8 versions, from 1 to 8"));
}
INSTANTIATE_TEST_SUITE_P(Places, ArchiveBeside, ::testing::Values("disk", "memory"));

TEST_F(ArchiveTest, BothAreKilledInTheMiddleAndGoOn) {
  cluster.start_origin();
  publish();
  publish();
  ASSERT_TRUE(Cluster::eventually(
      [&] { return fs::exists(cluster.state("origin") + "/memory/patches/000000000002-000000000001/patch"); }));
  const Cluster::Flags arguments{"archive", "--state", cluster.state("origin"), "--to", server.url()};
  // Requests for the object that has this name behind the run's.
  const auto requests = [&](const char* method, const std::string& name) {
    return std::ranges::count_if(server.requests(), [&](const ObjectServer::Request& request) {
      return request.method == method && request.target.size() == std::string("/arch/").size() + 16 + name.size() &&
             request.target.ends_with(name);
    });
  };
  // The whole version's digests are the first object after its bytes.
  server.fail_on("PUT", ".digests", Fault::kStill);
  {
    Process archive = start(arguments);
    ASSERT_TRUE(Cluster::eventually([&] { return requests("PUT", "-000000000001.digests") == 1; })) << said();
    archive.signal(SIGKILL);
    EXPECT_EQ(archive.wait(std::chrono::seconds(10)), 128 + SIGKILL);
  }
  EXPECT_FALSE(server.objects().contains("index.json"));
  const Ran ran = cluster.run(arguments);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(requests("PUT", "-000000000001.00000"), 1) << "its bytes were there";
  EXPECT_THAT(ran.out, HasSubstr("0 B sent"));

  // Of a fetch, the patch after the whole version.
  server.fail_on("GET", "-000000000002-000000000001.00000", Fault::kStill);
  {
    Process fetching = start({"fetch", "--from", server.url(), "--keys", key_file, "-o", cluster.temp().file("fetched"),
                              "--connections", "1"});
    ASSERT_TRUE(Cluster::eventually([&] { return requests("GET", "-000000000002-000000000001.00000") == 1; }))
        << said();
    fetching.signal(SIGKILL);
    EXPECT_EQ(fetching.wait(std::chrono::seconds(10)), 128 + SIGKILL);
  }
  EXPECT_FALSE(fs::exists(cluster.temp().file("fetched")));
  EXPECT_TRUE(is_there(server.url(), 2));
  EXPECT_EQ(requests("GET", "-000000000001.00000"), 1) << "its bytes were here";
}

TEST_F(ArchiveTest, AServerThatFailsNowAndThenIsNoMatter) {
  cluster.start_origin();
  publish();
  server.fail_next({Fault::kUnavailable, Fault::kDrop, Fault::kUnavailable});
  ASSERT_THAT(cluster.run({"archive", "--state", cluster.state("origin"), "--to", server.url()}), Exits(0));
  server.fail_next({Fault::kUnavailable, Fault::kNone, Fault::kNone, Fault::kCut, Fault::kCut});
  EXPECT_TRUE(is_there(server.url(), 1));
}

TEST_F(ArchiveTest, SaysWhatIsWrongOnOneLine) {
  cluster.start_origin();
  const Ran empty = cluster.run({"archive", "--state", cluster.state("origin"), "--to", server.url()});
  EXPECT_THAT(empty, Exits(1, "--follow"));
  const Ran nowhere = cluster.run({"archive", "--state", cluster.temp().file("none"), "--to", server.url()});
  EXPECT_THAT(nowhere.err, HasSubstr("no state directory"));
  publish();
  const Ran wrong = cluster.run({"archive", "--state", cluster.state("origin"), "--to", "ftp://host/path"});
  EXPECT_THAT(wrong, Exits(2, "s3://BUCKET/PREFIX"));
  EXPECT_THAT(fetch(server.url(), 1).err, AllOf(HasSubstr("index.json"), HasSubstr("no such object")));
  server.fail_next({Fault::kForbidden});
  const Ran refused = cluster.run({"archive", "--state", cluster.state("origin"), "--to", server.url()});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("403"), HasSubstr("SignatureDoesNotMatch"), Not(HasSubstr("KEYID"))));
  for (const Ran* ran : {&empty, &nowhere, &wrong, &refused}) {
    EXPECT_EQ(std::ranges::count(ran->err, '\n'), 1) << ran->err;
  }
}

/// A worker that joins, with an archive that has the version beside an origin that takes four seconds for it.
class JoinerTest : public ArchiveTest {
 protected:
  void SetUp() override {
    cluster.start_origin({"--pack", "never", "--uplink", "4mbit"});
    publish();
    ASSERT_THAT(cluster.run({"archive", "--state", cluster.state("origin"), "--to", server.url()}), Exits(0));
  }
  void join(Cluster::Flags more = {}) {
    more.insert(more.end(), {"--archive", server.url()});
    cluster.start_worker("joiner", more);
  }
  [[nodiscard]] std::uint64_t archive_bytes() const { return cluster.self("joiner").at("archive_bytes"); }
  [[nodiscard]] std::string trouble() const { return cluster.self("joiner").at("archive_trouble"); }
  [[nodiscard]] std::ptrdiff_t lines_of_archive() const {
    std::ptrdiff_t count = 0;
    std::istringstream log(cluster.log("joiner"));
    for (std::string line; std::getline(log, line);) count += line.find("the archive:") != line.npos;
    return count;
  }
};

TEST_F(JoinerTest, ReadsBesideItsOrigin) {
  join();
  ASSERT_TRUE(cluster.gets("joiner", 1, published[0]));
  EXPECT_GT(archive_bytes(), 500'000u);
  EXPECT_EQ(trouble(), "");
  EXPECT_EQ(lines_of_archive(), 0);
  EXPECT_THAT(cluster.log("joiner"), HasSubstr("from the archive"));
  EXPECT_THAT(cluster.run({"status", "--state", cluster.state("joiner")}).out, HasSubstr("came from the archive"));
}

TEST_F(JoinerTest, CompletesWithoutPeers) {
  join({"--archive-rate", "4mbit"});
  ASSERT_TRUE(Cluster::eventually([&] { return archive_bytes() > 0; }));
  EXPECT_EQ(cluster.end("origin", SIGKILL), 128 + SIGKILL);
  ASSERT_TRUE(cluster.gets("joiner", 1, published[0]));
}

TEST_F(JoinerTest, AnArchiveThatLiesChangesNothing) {
  for (auto [name, bytes] : server.objects()) {
    if (!name.ends_with("0001.00000")) continue;
    std::ranges::reverse(bytes);
    server.put(name, bytes);
  }
  join();
  ASSERT_TRUE(cluster.gets("joiner", 1, published[0]));
  EXPECT_EQ(archive_bytes(), 0u);
  EXPECT_THAT(trouble(), HasSubstr("not what was published"));
  EXPECT_EQ(lines_of_archive(), 1);
}

TEST_F(JoinerTest, AnArchiveWithoutTheVersionIsSaidOnceAndAskedAgain) {
  const auto objects = server.objects();
  auto index = nlohmann::json::parse(objects.at("index.json"));
  const std::string whole = objects.at("index.json");
  index["payloads"].clear();
  server.put("index.json", index.dump());
  join();
  ASSERT_TRUE(Cluster::eventually([&] { return trouble().find("does not have version 1") != std::string::npos; }))
      << cluster.log("joiner");
  server.put("index.json", whole);
  ASSERT_TRUE(cluster.gets("joiner", 1, published[0]));
  EXPECT_EQ(lines_of_archive(), 1);
}

TEST_F(JoinerTest, FlagsThatCannotBeAreRefused) {
  const auto refused = [&](Cluster::Flags flags) {
    flags.insert(flags.begin(), {"daemon", "--insecure", "--state", cluster.temp().file("other")});
    const Ran ran = cluster.run(flags);
    EXPECT_EQ(ran.status, 2) << ran.err;
    return ran.err;
  };
  EXPECT_THAT(refused({"--role", "origin", "--archive", server.url()}), HasSubstr("--archive: for workers"));
  const Cluster::Flags worker{"--role", "worker", "--origin", cluster.address("origin")};
  const auto with = [&](Cluster::Flags more) {
    more.insert(more.begin(), worker.begin(), worker.end());
    return more;
  };
  EXPECT_THAT(refused(with({"--archive-rate", "1mbit"})), HasSubstr("they need --archive"));
  EXPECT_THAT(refused(with({"--archive", "ftp://host/path"})), AllOf(HasSubstr("--archive"), HasSubstr("s3://")));
}

/// Faults of the server, in what the worker asks for first.
class JoinerFaults : public JoinerTest, public testing::WithParamInterface<Fault> {};

TEST_P(JoinerFaults, PeersBringAllTheSame) {
  for (int i = 0; i < 4; ++i) server.fail_on("GET", "0001.0000", GetParam());
  join();
  ASSERT_TRUE(cluster.gets("joiner", 1, published[0]));
  EXPECT_LE(lines_of_archive(), 1);
  if (GetParam() != Fault::kStill) {
    EXPECT_EQ(lines_of_archive(), 1) << cluster.log("joiner");
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, JoinerFaults,
                         testing::Values(Fault::kUnavailable, Fault::kCut, Fault::kWhole, Fault::kOtherRange,
                                         Fault::kOtherSize, Fault::kStill, Fault::kForbidden, Fault::kMoved,
                                         Fault::kDrop));

}  // namespace
}  // namespace weightcast
