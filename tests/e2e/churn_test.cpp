// A trainer and an engine that go on for long while daemons are killed at random: every call ends in time, and neither
// the library nor a daemon keeps memory, descriptors or shared memory. 40 cycles; WEIGHTCAST_CHURN_CYCLES for more.
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/units.h"
#include "tests/e2e/fleet/cluster.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// What weightcast.h promises: how late after its time-out a call may end.
constexpr milliseconds kLateMax = 100ms;
constexpr std::uint64_t kSnapshotBytes = kMiB;
constexpr std::uint64_t kHeapGrowthMax = 64 * kKiB;  // of this process, the library's part and the test's own
constexpr std::uint64_t kAnonGrowthMax = 12 * kMiB;  // of a daemon: buffers that it keeps, and 8 that may lie free
constexpr int kVersionFilesMax = 4 * 2 + 4;  // of a daemon: two versions, a pinned and a spare one; and two payloads
constexpr int kSocketGrowthMax = 3;          // of a daemon: plans give it other parents and children

int cycles() {
  const char* const named = std::getenv("WEIGHTCAST_CHURN_CYCLES");
  return named == nullptr ? 40 : std::max(8, std::atoi(named));
}

/// How long this host has kept a thread from running: on a busy one that is not the library's.
class StallMeter {
 public:
  StallMeter() : thread_([this] { run(); }) {}
  ~StallMeter() {
    stopping_ = true;
    thread_.join();
  }
  void reset() { longest_ = Clock::duration::zero(); }
  [[nodiscard]] Clock::duration longest() const { return longest_; }

 private:
  void run() {
    while (!stopping_) {
      const auto began = Clock::now();
      std::this_thread::sleep_for(1ms);
      const Clock::duration late = Clock::now() - began - 1ms;
      if (late > longest_.load()) longest_ = late;
    }
  }

  std::atomic<bool> stopping_{false};
  std::atomic<Clock::duration> longest_{Clock::duration::zero()};
  std::thread thread_;
};

/// Runs tasks one after another on a thread that lives as long as the test: a daemon ends with the thread that started
/// it.
class Supervisor {
 public:
  Supervisor() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

  void start(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
    changed_.notify_all();
  }
  void join() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return task_ == nullptr; });
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return task_ != nullptr; })) {
      lock.unlock();
      task_();
      lock.lock();
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::function<void()> task_;
  std::jthread thread_;
};

/// What a process has: descriptors by what they lead to, and memory of its own.
struct Footprint {
  std::size_t descriptors = 0;
  std::size_t regions = 0;
  std::uint64_t anon_bytes = 0;
  std::uint64_t shared_bytes = 0;
  std::map<std::string, int> kinds;
  std::map<std::string, int> files;  ///< open ones, by path

  static Footprint of(pid_t process) {
    Footprint found;
    const std::string proc = "/proc/" + std::to_string(process);
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(proc + "/fd", error)) {
      const std::string target = std::filesystem::read_symlink(entry, error).string();
      if (error) continue;  // of the directory itself
      ++found.descriptors;
      ++found.kinds[target.starts_with('/') ? "file" : target.substr(0, target.find(':'))];
      if (target.starts_with('/')) ++found.files[target];
      found.regions += target.find("memfd:weightcast") != std::string::npos;
    }
    std::ifstream status(proc + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("RssAnon:")) found.anon_bytes = std::strtoull(line.c_str() + 8, nullptr, 10) * kKiB;
      if (line.starts_with("RssShmem:")) found.shared_bytes = std::strtoull(line.c_str() + 9, nullptr, 10) * kKiB;
    }
    return found;
  }
  [[nodiscard]] int sockets() const {
    const auto found = kinds.find("socket");
    return found == kinds.end() ? 0 : found->second;
  }
  /// Of files of the versions that it has, or has for the next one; a parent keeps open what it has served.
  [[nodiscard]] int of_versions() const {
    int found = 0;
    for (const auto& [path, count] : files) {
      for (const char* const folder : {"/versions/", "/spare/", "/patches/"}) {
        if (path.find(folder) != std::string::npos) found += count;
      }
    }
    return found;
  }
  [[nodiscard]] int other() const { return int(descriptors) - sockets() - of_versions(); }
  [[nodiscard]] std::string text() const {
    std::string out = std::to_string(descriptors) + " descriptors (";
    for (const auto& [kind, count] : kinds) out += kind + " " + std::to_string(count) + ", ";
    return out + std::to_string(regions) + " regions), " + std::to_string(anon_bytes / kKiB) + " KiB anonymous, " +
           std::to_string(shared_bytes / kKiB) + " KiB shared";
  }
  [[nodiscard]] std::string files_text() const {
    std::string out;
    for (const auto& [path, count] : files) out += "\n  " + std::to_string(count) + " " + path;
    return out;
  }
};

struct ChurnTest : testing::Test {
  const unsigned seed = std::random_device{}();
  std::mt19937 random{seed};
  Supervisor supervisor;  // outlives the daemons
  Cluster cluster;
  StallMeter stalls;
  std::optional<wc::Client> trainer;
  std::vector<wc::Tensor> tensors;
  std::map<wc_code, int> ended;  // calls, by how
  std::map<std::string, Cluster::Flags> flags;

  void SetUp() override {
    cluster.start_fleet({"a", "b"});
    const std::string origin = cluster.address("origin");
    flags["origin"] = {"--role", "origin", "--listen", origin};
    for (const char* name : {"a", "b"}) {
      flags[name] = {"--role", "worker", "--origin", origin, "--listen", cluster.address(name)};
    }
    for (int i = 0; i < 4; ++i) {
      wc::Tensor& tensor = tensors.emplace_back();
      tensor.name = "layer." + std::to_string(i);
      tensor.dtype = "U8";
      tensor.shape = {kSnapshotBytes / 4};
    }
  }

  [[nodiscard]] bool chance(unsigned percent) { return random() % 100 < percent; }
  [[nodiscard]] milliseconds upto(unsigned limit_ms) { return milliseconds(random() % (limit_ms + 1)); }

  /// Makes one call. Returns how it ended, which has to be in time.
  template <typename Call>
  wc_code timed(const char* name, milliseconds timeout, const Call& call) {
    stalls.reset();
    const auto began = Clock::now();
    wc_code code = WC_OK;
    std::string text;
    try {
      call();
    } catch (const wc::Error& error) {
      code = error.code();
      text = error.what();
    }
    const Clock::duration took = Clock::now() - began;
    EXPECT_LE(took, timeout + kLateMax + stalls.longest())
        << name << " took " << std::chrono::duration<double>(took).count() << " s of " << timeout.count()
        << " ms: " << text;
    const bool expected = code == WC_OK || code == WC_NOT_FOUND || code == WC_CLOSED || code == WC_TIMED_OUT;
    EXPECT_TRUE(expected) << name << ": " << text;
    ++ended[code];
    return code;
  }

  /// Kills a daemon some time from now, and starts it again.
  void crash(const std::string& victim) {
    supervisor.start([this, victim, at = upto(60), pause = upto(40)] {
      std::this_thread::sleep_for(at);
      cluster.process(victim).signal(SIGKILL);
      EXPECT_TRUE(cluster.process(victim).wait(60s));
      std::this_thread::sleep_for(pause);
      cluster.launch(victim, flags.at(victim));
      wc::wait_until_ready(cluster.state(victim), 60s);
    });
  }

  void publish_once(char value) {
    const std::string state = cluster.state("origin");
    if (trainer && chance(10)) trainer.reset();  // with whatever is begun or being read
    if (!trainer) timed("wc_open", 500ms, [&] { trainer.emplace(state, 500ms); });
    if (!trainer) return;
    std::vector<void*> places;
    const wc_code begun =
        timed("wc_begin", 300ms, [&] { places = trainer->begin(tensors, {.second_region = chance(30)}, 300ms); });
    if (begun != WC_OK) return;
    for (void* place : places) std::memset(place, value, kSnapshotBytes / 4);
    if (chance(10)) return trainer->abort();
    if (timed("wc_commit", 300ms, [&] { trainer->commit(300ms); }) != WC_OK) {
      // What has not left stays the trainer's.
      trainer->abort();
      return;
    }
    const milliseconds timeout = upto(300);
    timed("wc_wait", timeout,
          [&] { trainer->wait(0, {.fraction = chance(50) ? 1.0 : 0.0, .on_progress = {}}, timeout); });
  }

  void use_once(const std::string& worker) {
    std::optional<wc::Subscription> engine;
    timed("wc_subscribe", 300ms, [&] { engine.emplace(cluster.state(worker), 300ms); });
    if (!engine) return;
    std::optional<wc::Event> event;
    timed("wc_next", 200ms, [&] { event = engine->next(200ms); });
    std::optional<wc::Event> pinned;
    timed("wc_acquire", 200ms, [&] { pinned = engine->acquire(0, 200ms); });
    if (!pinned) return;
    // A crash releases it, and then it may go.
    // Not to be passed to a daemon that the supervisor starts meanwhile.
    if (std::FILE* file = std::fopen((pinned->directory + "/model.safetensors").c_str(), "rbe"); file != nullptr) {
      std::string bytes(2 * kSnapshotBytes, '\0');
      bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
      std::fclose(file);
      const std::string_view weights = std::string_view(bytes).substr(bytes.size() - kSnapshotBytes);
      EXPECT_EQ(weights.find_first_not_of(weights[0]), weights.npos) << "version " << pinned->version << " is torn";
    }
    if (chance(80)) timed("wc_release", 200ms, [&] { engine->release(pinned->version, 200ms); });
  }

  /// Nothing is under way: everybody has one more version, and the handles are closed.
  void settle() {
    for (const auto& [name, _] : flags) wc::wait_until_ready(cluster.state(name), 60s);
    if (!trainer) trainer.emplace(cluster.state("origin"), 60s);
    std::uint64_t version = 0;
    const auto published = [&] {
      try {
        for (void* place : trainer->begin(tensors, {}, 60s)) std::memset(place, 'z', kSnapshotBytes / 4);
        version = trainer->commit(60s);
        return trainer->wait(version, {.fraction = 1, .on_progress = {}}, 60s).reached;
      } catch (const wc::Error&) {
        return false;
      }
    };
    ASSERT_TRUE(published() || published()) << "a daemon that was killed before may still be found gone, once";
    for (const char* name : {"a", "b"}) {
      ASSERT_TRUE(Cluster::eventually([&] { return cluster.version(name) == version; })) << cluster.log(name);
    }
    trainer.reset();
  }

  Footprint footprint(const std::string& name) {
    Footprint now;
    // The last local connections close a moment after their programs did.
    std::optional<Footprint> before;
    EXPECT_TRUE(Cluster::eventually([&] {
      now = Footprint::of(cluster.process(name).pid());
      const bool same = before && before->kinds == now.kinds;
      before = now;
      if (!same) std::this_thread::sleep_for(300ms);
      return same;
    }));
    return now;
  }
};

TEST_F(ChurnTest, CallsEndInTimeAndNobodyKeepsAnything) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const int total = cycles();
  // The origin is spared in the second half, so that what it keeps adds up; "b" always.
  Footprint b_before, origin_before, own_before;
  std::size_t heap_before = 0;
  for (int cycle = 0; cycle < total && !HasFatalFailure(); ++cycle) {
    if (cycle == total / 2) {
      settle();
      b_before = footprint("b");
      origin_before = footprint("origin");
      own_before = Footprint::of(::getpid());
      heap_before = ::mallinfo2().uordblks;
    }
    if (chance(25)) crash(cycle < total / 2 && chance(50) ? "origin" : "a");
    publish_once(static_cast<char>('a' + cycle % 26));
    use_once(chance(50) ? "a" : "b");
    supervisor.join();
  }
  settle();
  const Footprint own = Footprint::of(::getpid());
  const std::size_t heap = ::mallinfo2().uordblks;
  EXPECT_EQ(own.descriptors, own_before.descriptors) << own.text() << ", before " << own_before.text();
  EXPECT_EQ(own.regions, 0u);
  EXPECT_LE(heap, heap_before + kHeapGrowthMax);
  for (const auto& [name, before] : {std::pair("b", b_before), std::pair("origin", origin_before)}) {
    const Footprint now = footprint(name);
    SCOPED_TRACE(std::string(name) + ": " + now.text() + ", before " + before.text());
    EXPECT_LE(now.sockets(), before.sockets() + kSocketGrowthMax);
    EXPECT_LE(now.other(), before.other()) << "open before:" << before.files_text() << "\nnow:" << now.files_text();
    EXPECT_LE(now.of_versions(), kVersionFilesMax) << now.files_text();
    for (const auto& [path, count] : now.files) {
      EXPECT_FALSE(path.find("weightcast-test-") != path.npos && path.ends_with(" (deleted)")) << path;
    }
    EXPECT_EQ(now.regions, 0u);
    EXPECT_LE(now.shared_bytes, before.shared_bytes);
    EXPECT_LE(now.anon_bytes, before.anon_bytes + kAnonGrowthMax);
  }
  EXPECT_EQ(footprint("a").regions, 0u);
  EXPECT_GT(ended[WC_OK], 2 * total) << "most calls succeed";
  std::printf("%d cycles, seed %u; calls by code:", total, seed);
  for (const auto& [code, count] : ended) std::printf(" %s %d", wc_code_name(code), count);
  std::printf("; heap %+zd bytes; b: %s; origin: %s\n", static_cast<std::ptrdiff_t>(heap - heap_before),
              footprint("b").text().c_str(), footprint("origin").text().c_str());
}

}  // namespace
}  // namespace weightcast
