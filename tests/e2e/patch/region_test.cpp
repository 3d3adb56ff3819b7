// Publications that a trainer fills in place: what real daemons do with the memory, whatever becomes of the trainer.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "base/units.h"
#include "patch/snapshot/safetensors.h"
#include "tests/client/code_of.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/e2e/fleet/offered_region.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::vector<wc::Tensor> tensors_of(std::uint64_t bytes) {
  std::vector<wc::Tensor> tensors(4);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].name = "layer." + std::to_string(i);
    tensors[i].dtype = "U8";
    tensors[i].shape = {bytes / tensors.size()};
  }
  return tensors;
}

void fill(const std::vector<void*>& places, const std::vector<wc::Tensor>& tensors, char value) {
  for (std::size_t i = 0; i < places.size(); ++i) std::memset(places[i], value, tensors[i].shape[0]);
}

/// The bytes of the tensors that a node has installed.
std::string installed_bytes(const Cluster& cluster, const std::string& node) {
  const std::string file = read_file(cluster.state(node) + "/current/model.safetensors");
  std::uint64_t header_bytes = 0;
  if (file.size() < sizeof header_bytes) return "";
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  return file.substr(sizeof header_bytes + header_bytes);
}

bool is_all(const std::string& bytes, char value) {
  return !bytes.empty() && bytes.find_first_not_of(value) == std::string::npos;
}

/// Regions that a process holds.
std::size_t regions_of(pid_t process) {
  std::size_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", error)) {
    count += std::filesystem::read_symlink(entry, error).string().find("memfd:weightcast") != std::string::npos;
  }
  return count;
}

struct RegionTest : testing::Test {
  Cluster cluster;
  void SetUp() override { cluster.start_fleet({"a"}); }
};

// The trainer goes on as fast as it may, from two regions. Each version that arrives is one that it filled, whole.
TEST_F(RegionTest, WeightsAreNeverTorn) {
  const auto tensors = tensors_of(8 * kMiB);
  wc::Client trainer(cluster.state("origin"));
  wc::Subscription engine(cluster.state("a"));
  int seen = 0;
  std::uint64_t last = 0;
  for (std::uint64_t v = 1; v <= 12; ++v) {
    wc::PublishOptions options;
    options.version = v;
    options.second_region = v % 3 != 0;
    // Time-outs of every length come between.
    for (std::int64_t patience = 0;; patience = 2 * patience + 1) {
      try {
        fill(trainer.begin(tensors, options, wc::Milliseconds(patience)), tensors, char('a' + v));
        break;
      } catch (const wc::Error& error) {
        ASSERT_EQ(error.code(), WC_TIMED_OUT) << error.what();
        ASSERT_LT(patience, 60'000);
      }
    }
    ASSERT_EQ(trainer.commit(30s), v);
    while (const auto event = engine.next(0ms)) {
      if (event->kind != WC_EVENT_INSTALLED) continue;
      const std::string file = read_file(event->directory + "/model.safetensors");
      if (file.empty()) continue;  // a newer one has taken its place
      last = event->version;
      ++seen;
      EXPECT_TRUE(is_all(file.substr(file.size() - 8 * kMiB), char('a' + event->version))) << event->version;
    }
  }
  EXPECT_TRUE(trainer.wait(12, {.fraction = 1, .on_progress = {}}, 60s).reached);
  EXPECT_TRUE(is_all(installed_bytes(cluster, "a"), 'a' + 12));
  EXPECT_TRUE(is_all(installed_bytes(cluster, "origin"), 'a' + 12));
  EXPECT_GT(seen + (last > 0), 0);
}

TEST_F(RegionTest, ATrainerThatIsKilledLeavesNothingBehind) {
  const pid_t origin = cluster.process("origin").pid();
  const auto tensors = tensors_of(32 * kMiB);
  const auto shm = [] { return std::distance(std::filesystem::directory_iterator("/dev/shm"), {}); };
  const auto names_before = shm();
  for (int round = 0; round < 4; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        wc::Client trainer(cluster.state("origin"));
        fill(trainer.begin(tensors, {}, 30s), tensors, 'x');
        // Killed while it fills, when it has committed, and while the origin reads.
        if (round > 0) trainer.commit(30s);
        if (round > 2) trainer.wait(0, {}, 30s);
        [[maybe_unused]] const ssize_t told = ::write(ready[1], "r", 1);
        ::pause();
      } catch (const wc::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      ::_exit(1);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  // What was committed is published all the same.
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.version("a") == 3; }));
  EXPECT_TRUE(is_all(installed_bytes(cluster, "a"), 'x'));
  EXPECT_TRUE(Cluster::eventually([&] { return regions_of(origin) == 0; }));
  // Other programs may have names there, too.
  EXPECT_TRUE(Cluster::eventually([&] { return shm() <= names_before; }));
}

TEST_F(RegionTest, AnOriginThatIsKilledIsFoundAgainByItsTrainer) {
  const auto tensors = tensors_of(kMiB);
  wc::Client trainer(cluster.state("origin"));
  fill(trainer.begin(tensors, {}, 5s), tensors, 'a');
  EXPECT_EQ(trainer.commit(5s), 1u);
  EXPECT_TRUE(trainer.wait(1, {.fraction = 1, .on_progress = {}}, 60s).reached);
  cluster.end("origin", SIGKILL);
  fill(trainer.begin(tensors, {}, 5s), tensors, 'b');  // needs no daemon
  EXPECT_EQ(code_of([&] { return trainer.commit(1s); }), WC_NOT_FOUND) << "there is nobody";
  cluster.restart("origin");
  EXPECT_EQ(trainer.commit(5s), 2u) << "what was filled is still there";
  EXPECT_TRUE(trainer.wait(0, {.fraction = 1, .on_progress = {}}, 60s).reached);
  EXPECT_TRUE(is_all(installed_bytes(cluster, "a"), 'b'));
}

// A program of the same user may send anything. The daemon refuses it, and goes on.
TEST_F(RegionTest, WhatIsNoSnapshotIsRefusedAndTheOriginGoesOn) {
  const auto offer = [&](std::string_view bytes, std::uint64_t size_bytes) {
    local::PublishRequest request;
    request.region = true;
    return offer_region(cluster.state("origin"), request, bytes, size_bytes);
  };
  const auto header = [](std::string json) {
    const std::uint64_t length = json.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json;
  };
  EXPECT_THAT(offer("", 100'000), HasSubstr("the region")) << "all zero";
  const std::string fits = header(R"({"w":{"dtype":"U8","shape":[50],"data_offsets":[0,50]}})");
  EXPECT_THAT(offer(fits, fits.size() + 51), HasSubstr("belong to none"));
  const std::string nan = header(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})") + "\xff\xff\xff\xff";
  EXPECT_THAT(offer(nan, nan.size()), HasSubstr("WC_ALLOW_NONFINITE"));
  EXPECT_EQ(offer(fits, fits.size() + 50), "taken over");
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.version("a") > 0; }));
  EXPECT_EQ(installed_bytes(cluster, "a"), std::string(50, '\0'));
}

// Its owner may write to a region while it is read. The copy that is kept is a snapshot, whatever he writes.
TEST_F(RegionTest, AHeaderThatChangesWhileItIsReadDoesNotReachTheCopy) {
  wc::Client trainer(cluster.state("origin"));
  const auto tensors = tensors_of(64 * kMiB);
  const std::vector<void*> places = trainer.begin(tensors, {}, 5s);
  fill(places, tensors, 'a');
  const int fd = ::dup(trainer.region_fd());
  std::atomic<bool> over{false};
  std::thread vandal([&] {
    while (!over) {
      for (const char byte : {'{', 'x'}) EXPECT_EQ(::pwrite(fd, &byte, 1, 8), 1);
    }
  });
  const std::uint64_t version = trainer.commit(30s);
  try {
    trainer.wait(version, {}, 60s);
    const std::string file = read_file(cluster.state("origin") + "/current/model.safetensors");
    EXPECT_TRUE(parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "copy").has_value());
  } catch (const wc::Error& error) {
    EXPECT_TRUE(error.code() == WC_CORRUPT) << error.what();  // it was noticed
  }
  over = true;
  vandal.join();
  ::close(fd);
  EXPECT_EQ(cluster.status("origin").at("nodes").size(), 2u) << "the origin lives";
}

// ---- engines that hold a version

TEST(Acquire, KeepsADirectoryUntilItIsReleasedOrItsEngineIsKilled) {
  Cluster cluster;
  cluster.start_origin();
  cluster.start_worker("a", {"--keep", "1"});
  wc::Client trainer(cluster.state("origin"));
  const auto tensors = tensors_of(kMiB);
  const auto publish = [&](char value) {
    fill(trainer.begin(tensors, {}, 30s), tensors, value);
    EXPECT_TRUE(trainer.wait(trainer.commit(30s), {.fraction = 1, .on_progress = {}}, 60s).reached);
  };
  publish('a');
  std::optional<wc::Subscription> engine(std::in_place, cluster.state("a"));
  const wc::Event pinned = engine->acquire();
  const auto version_1 = [&] { return read_file(pinned.directory + "/model.safetensors"); };
  EXPECT_EQ(pinned.version, 1u);
  EXPECT_EQ(std::filesystem::canonical(pinned.directory).filename(), "000000000001");
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    wc::Subscription other(cluster.state("a"));
    const bool same = other.acquire(1).version == 1;
    [[maybe_unused]] const ssize_t told = ::write(ready[1], same ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  for (const char value : {'b', 'c', 'd'}) publish(value);
  EXPECT_TRUE(is_all(version_1().substr(version_1().size() - kMiB), 'a')) << "both hold it";
  engine->release(1);
  publish('e');
  EXPECT_FALSE(version_1().empty()) << "one holds it still";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(Cluster::eventually([&] { return !std::filesystem::exists(pinned.directory); }));
  for (const int fd : ready) ::close(fd);
}

}  // namespace
}  // namespace weightcast
