// kill -9 while a patch is made, sent or applied: no reader ever sees a mixture, and everybody comes to the new
// version.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "tests/e2e/fleet/reader.h"
#include "tests/e2e/patch/patch_fixture.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

namespace fs = std::filesystem;

std::string patch_name(std::uint64_t version) { return fmt::format("{:012}-{:012}", version, version - 1); }

using PatchCrashTest = PatchTest;

/// Lets the origin run for a moment at a time until a worker has chunks of that version. Leaves it stopped.
void run_until_chunks_arrive(Cluster& cluster, const std::string& worker, std::uint64_t version) {
  Process& origin = cluster.process("origin");
  wc::Client client(cluster.state(worker));
  EXPECT_TRUE(Cluster::eventually([&] {
    origin.signal(SIGCONT);
    std::this_thread::sleep_for(4ms);
    origin.signal(SIGSTOP);
    std::this_thread::sleep_for(4ms);
    const nlohmann::json node = nlohmann::json::parse(client.status()).at("nodes")[0];
    return node.at("version") == version || (node.at("receiving_version") == version && node.at("chunks_verified") > 0);
  }));
}

TEST_F(PatchCrashTest, OriginThatDiesWhileItSendsAPatchThatItIsMakingMakesItAgain) {
  const std::vector<std::string> workers{"a", "b"};
  Model large(model.path(), 16'000'000);
  cluster.start_origin({"--topology", "chain"});
  for (const std::string& name : workers) cluster.start_worker(name);
  ASSERT_EQ(cluster.publish(large.path(), 1).status, 0);
  std::set<Checksum> published{large.digest()};
  Reader a_reader(cluster.state("a")), b_reader(cluster.state("b"));
  bool was_open = false;
  std::uint64_t version = 2;
  for (; version <= 25 && !was_open; ++version) {
    large.move_many();
    published.insert(large.digest());
    std::thread publishing([&] { static_cast<void>(cluster.publish(large.path(), version, {})); });
    run_until_chunks_arrive(cluster, "a", version);
    const std::optional<int> status = cluster.end("origin", SIGKILL);
    publishing.join();
    ASSERT_EQ(status, 128 + SIGKILL);
    const fs::path state = cluster.state("origin");
    const auto is_in = [&](const char* folder) { return fs::exists(state / "memory" / folder / patch_name(version)); };
    was_open = is_in("incoming") && !is_in("records");
    cluster.restart("origin");
    for (const std::string& name : workers) {
      ASSERT_TRUE(cluster.gets(name, version, large.path()));
    }
  }
  EXPECT_TRUE(was_open) << "it was not killed in time";
  large.step();
  published.insert(large.digest());
  const Ran last = cluster.publish(large.path(), version);
  ASSERT_EQ(last.status, 0) << last.err;
  EXPECT_EQ(nlohmann::json::parse(last.out).at("kind"), "patch");
  for (const std::string& name : workers) EXPECT_TRUE(cluster.holds(name, large.path()));
  for (Reader* reader : {&a_reader, &b_reader}) {
    reader->stop();
    EXPECT_GE(reader->seen().size(), 2u) << "it read while versions changed";
    for (const auto& [digest, times] : reader->seen()) EXPECT_TRUE(published.contains(digest)) << times << " times";
  }
}

/// Where the only copy lies: "disk" or "memory".
class SingleCopyCrashTest : public PatchTest, public testing::WithParamInterface<const char*> {};

TEST_P(SingleCopyCrashTest, WhoDiesWhileItsFilesChangeHasAWholeVersionOrNone) {
  std::mt19937 random(7);
  cluster.start_origin();
  cluster.start_worker("single", {"--single-copy", "--versions-in", GetParam()});
  publish(1);
  const fs::path state = cluster.state("single");
  const fs::path root = fs::read_symlink(state / "current").parent_path().parent_path();
  EXPECT_EQ(root.is_absolute(), GetParam() == std::string_view("memory"));
  const fs::path file = state / "current" / "model.safetensors";
  std::string before = read_file(model.path());
  int changing_at_death = 0;
  // On a busy host it may take more than three of them to meet those milliseconds.
  for (std::uint64_t version = 2; version <= 7 || (changing_at_death == 0 && version <= 31); ++version) {
    model.step();
    const std::string after = read_file(model.path());
    publish(version, {});
    const fs::path made = state / root / "versions" / fmt::format("{:012}", version);
    // Every other one dies while its files change, which takes milliseconds; the others at any moment since the patch
    // began.
    const bool soon = version % 2 == 0;
    const fs::path patch = state / root / "incoming" / patch_name(version);
    const auto begun = [&] { return soon ? !fs::exists(file) : fs::exists(patch); };
    const auto give_up_at = std::chrono::steady_clock::now() + 120s;
    while (!begun() && !fs::exists(made)) ASSERT_LT(std::chrono::steady_clock::now(), give_up_at);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (soon ? 500 : 20'000)));
    ASSERT_EQ(cluster.end("single", SIGKILL), 128 + SIGKILL);
    if (!fs::exists(file)) ++changing_at_death;
    // What it finds by itself, before the origin can help it on.
    cluster.process("origin").signal(SIGSTOP);
    cluster.restart("single");
    const bool has_any = fs::exists(file);
    const std::string found = has_any ? read_file(file) : "";
    cluster.process("origin").signal(SIGCONT);
    EXPECT_TRUE(!has_any || found == before || found == after) << "version " << version;
    ASSERT_TRUE(cluster.gets("single", version, model.path()));
    before = after;
  }
  EXPECT_GT(changing_at_death, 0);
}

INSTANTIATE_TEST_SUITE_P(, SingleCopyCrashTest, testing::Values("disk", "memory"),
                         [](const auto& place) { return std::string(place.param); });

}  // namespace
}  // namespace weightcast
