// The real Store and its recovery on a disk that fails: at every call of a recovery, by damage of every file, and by
// schedules of faults that a seed determines. WEIGHTCAST_STORE_SCHEDULES=20000 runs so many of the latter, fresh ones
// if WEIGHTCAST_STORE_SEED does not name the first.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/random.h"
#include "tests/sim/describe_store.h"
#include "tests/sim/state_archive.h"
#include "tests/sim/store_host.h"
#include "transport/io/store/store_work.h"

namespace weightcast::sim {
namespace {

namespace fs = std::filesystem;

// ---- Recovery of the golden state directories, one fault at a time.

class StoreRecoveryFault : public testing::TestWithParam<const char*> {
 protected:
  StoreRecoveryFault() {
    const fs::path path =
        fs::path(WEIGHTCAST_STORE_GOLDEN) / fmt::format("form_{}", kRecordForm) / (std::string(GetParam()) + ".state");
    std::ifstream in(path, std::ios::binary);
    archive_.assign(std::istreambuf_iterator<char>(in), {});
  }

  /// A host with that state directory, every byte and name of it on the platter.
  [[nodiscard]] std::unique_ptr<StoreHost> make_host(std::uint64_t seed = 1) const {
    auto host = std::make_unique<StoreHost>(seed);
    EXPECT_TRUE(unpack_directory(host->files, archive_, "/").has_value());
    sync_all(host->files, "/");
    return host;
  }

  static void sync_all(FileSystem& files, const fs::path& path) {
    EXPECT_TRUE(sync_directory(files, path).has_value());
    const std::vector<std::string> names = *files.list(path);
    for (const std::string& name : names) {
      const FileInfo info = *files.link_info(path / name);
      if (info.is_directory()) sync_all(files, path / name);
      if (info.is_file()) {
        EXPECT_TRUE((*files.open(path / name, {.write = true}))->sync_data().has_value());
      }
    }
  }

  static std::vector<fs::path> files_below(FileSystem& files, const fs::path& path) {
    std::vector<fs::path> found;
    const std::vector<std::string> names = *files.list(path);
    for (const std::string& name : names) {
      const FileInfo info = *files.link_info(path / name);
      if (info.is_file()) found.push_back(path / name);
      if (!info.is_directory()) continue;
      for (const fs::path& file : files_below(files, path / name)) found.push_back(file);
    }
    return found;
  }

  static std::string describe_after_start(StoreHost& host) {
    if (!host.start()) return "not opened: " + host.open_error->message();
    return host.files.observe([&](FileSystem& files) { return describe(*host.store, files); });
  }

  std::string archive_;
};

// What cannot be read now is not wrong: whatever call fails, the next start finds all.
TEST_P(StoreRecoveryFault, FailedCallCostsNothing) {
  std::unique_ptr<StoreHost> host = make_host();
  const std::uint64_t before = host->files.calls();
  const std::string whole = describe_after_start(*host);
  const std::uint64_t calls = host->files.calls() - before;
  std::uint64_t refused = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    for (const int error : {EIO, EACCES, ETIMEDOUT}) {
      SCOPED_TRACE(testing::Message() << "call " << call << ", " << std::strerror(error));
      host = make_host();
      host->files.fail_call(call, error);
      if (!host->start()) {
        ++refused;
        EXPECT_NE(host->open_error->detail.find(std::strerror(error)), std::string::npos)
            << host->open_error->message();
        EXPECT_NE(host->open_error->detail.find(kState.native()), std::string::npos) << host->open_error->message();
      }
      ASSERT_EQ(describe_after_start(*host), whole);
    }
  }
  EXPECT_GT(refused, calls);
}

TEST_P(StoreRecoveryFault, CrashOfARecoveryCostsNothing) {
  std::unique_ptr<StoreHost> host = make_host();
  const std::uint64_t before = host->files.changes();
  const std::string whole = describe_after_start(*host);
  const std::uint64_t changes = host->files.changes() - before;
  for (std::uint64_t change = 1; change <= changes; ++change) {
    for (std::uint64_t cut = 0; cut < 4; ++cut) {
      SCOPED_TRACE(testing::Message() << "change " << change << ", cut " << cut);
      host = make_host(1 + cut);
      host->files.kill_before_change(host->files.changes() + change);
      static_cast<void>(host->start());  // nobody waits for the trash to be emptied
      ASSERT_TRUE(host->files.killed());
      host->end_process();
      if (cut == 0) {
        host->files.restart();
      } else {
        host->files.power_cut();
      }
      ASSERT_EQ(describe_after_start(*host), whole);
    }
  }
}

// Damage is found, and costs what it damaged. A durable version is believed without a look at its bytes.
TEST_P(StoreRecoveryFault, DamagedFileIsNeverTakenForWhole) {
  const std::vector<fs::path> victims = files_below(make_host()->files, kState);
  Random random(1);
  for (const fs::path& victim : victims) {
    for (unsigned damage = 0; damage < 12; ++damage) {
      SCOPED_TRACE(testing::Message() << victim << ", damage " << damage);
      const std::unique_ptr<StoreHost> host = make_host();
      const std::unique_ptr<File> file = *host->files.open(victim, {.write = true});
      const std::uint64_t size_bytes = file->info()->size_bytes;
      std::string garbage(1 + random.below(100), '\0');
      for (char& byte : garbage) byte = static_cast<char>(random.next());
      switch (damage) {
        case 0: ASSERT_TRUE(file->truncate(0).has_value()); break;
        case 1: ASSERT_TRUE(file->truncate(size_bytes / 2).has_value()); break;
        case 2: ASSERT_TRUE(file->truncate(size_bytes + 1).has_value()); break;
        case 3: ASSERT_TRUE(host->files.remove(victim).has_value()); break;
        case 4:
          ASSERT_TRUE(host->files.remove(victim).has_value());
          ASSERT_TRUE(host->files.make_directory(victim).has_value());
          break;
        case 5: ASSERT_TRUE(write_fully(*file, 0, std::as_bytes(std::span(garbage)), "garbage").has_value()); break;
        case 6:
          ASSERT_TRUE(write_fully(*file, size_bytes, std::as_bytes(std::span(garbage)), "garbage").has_value());
          break;
        default:
          if (size_bytes == 0) continue;
          host->files.flip_bit(victim, random.below(size_bytes), static_cast<unsigned>(random.below(8)));
      }
      if (!host->start()) {
        // A directory that somebody put there, or the number of the form was hit.
        const bool named = host->open_error->detail.find(victim.native()) != std::string::npos;
        EXPECT_TRUE(named && (damage == 4 || host->open_error->code == Errc::kUnsupported))
            << host->open_error->message();
        continue;
      }
      host->files.observe([&](FileSystem& files) {
        const std::string text = describe(*host->store, files);
        const bool believed = damage >= 5 && victim.parent_path().parent_path().filename() == "versions";
        if (!believed) {
          EXPECT_EQ(text.find("wrong"), std::string::npos) << text;
        }
        const Result<fs::path> current = files.read_link(kState / "current");
        EXPECT_EQ(current.has_value(), host->store->current() != kNoVersion);
      });
      // And the next start finds the same.
      const std::string text = host->files.observe([&](FileSystem& files) { return describe(*host->store, files); });
      EXPECT_EQ(describe_after_start(*host), text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, StoreRecoveryFault,
                         testing::Values("origin", "worker_full", "worker_patch", "worker_packed", "worker_not_synced",
                                         "in_place_half_made", "in_place_not_synced"),
                         [](const auto& state) { return std::string(state.param); });

// ---- Syncs that fail, and lose what they should have written.

class StoreLossySync : public testing::TestWithParam<bool> {};

// The `call`-th call after version 2 was installed fails, in turn.
TEST_P(StoreLossySync, VersionThatTheDiskLostIsNotCurrentAnyMore) {
  const bool single_copy = GetParam();
  std::uint64_t times_lost = 0, times_kept = 0;
  for (std::uint64_t call = 1; call < 120; ++call) {
    SCOPED_TRACE(testing::Message() << "call " << call);
    StoreHost host(call);
    host.store_options.single_copy = single_copy;
    ASSERT_TRUE(host.start());
    ASSERT_TRUE(host.receive_durably(snapshot(1)).has_value());
    Version lost{};
    host.store->on_lost([&](Version version, const Error& why) {
      lost = version;
      EXPECT_EQ(why.code, Errc::kCorrupt);
    });
    ASSERT_TRUE(host.receive(single_copy ? patch_to(2) : snapshot(2)).has_value());
    host.files.set_faults({.lossy_sync = 1});
    host.files.fail_call(call, EIO);
    host.pass(std::chrono::minutes(1));
    host.files.fail_no_call();
    host.note_durable();
    lost == kNoVersion ? ++times_kept : ++times_lost;
    const Version current = lost == kNoVersion ? Version{2} : Version{1};
    EXPECT_EQ(host.store->current(), current);
    EXPECT_EQ(host.store->find(Version{2}) == nullptr, lost == Version{2});
    ASSERT_NE(host.store->find(current), nullptr);
    EXPECT_TRUE(host.store->find(current)->durable);
    EXPECT_TRUE(host.holds(kState / "current", snapshot(current.value)));
    const Status next = host.receive(patch_to(current.value + 1));
    EXPECT_TRUE(next.has_value()) << next.error().message();
    host.end_process();
    host.files.power_cut();
    ASSERT_TRUE(host.start()) << host.open_error->message();
    EXPECT_GE(host.store->current(), host.durable);
    EXPECT_TRUE(host.holds(kState / "current", snapshot(host.store->current().value)));
    if (HasFailure()) return;
  }
  EXPECT_GT(times_lost, 0u);
  EXPECT_GT(times_kept, 0u);
}

INSTANTIATE_TEST_SUITE_P(, StoreLossySync, testing::Bool(),
                         [](const auto& single) { return single.param ? "SingleCopy" : "Beside"; });

TEST(StoreWork, WritingAgainStopsWhenTheNodeDoes) {
  StoreHost host(1);
  ASSERT_TRUE(host.start());
  ASSERT_TRUE(host.receive(snapshot(1)).has_value());
  const StoreLayout layout(host.files, kState);
  const auto files = VersionFiles::open(host.files, layout.complete(Version{1}), *FileTable::make(kFiles));
  ASSERT_TRUE(files.has_value());
  const Result<VersionRecord> record = read_record(host.files, layout.record(Version{1}));
  ASSERT_TRUE(record.has_value());
  std::atomic<bool> wanted = true;
  EXPECT_TRUE(write_again(layout, *record, **files, wanted).has_value());
  wanted = false;
  const std::uint64_t changes = host.files.changes();
  const Status stopped = write_again(layout, *record, **files, wanted);
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code, Errc::kBusy);
  EXPECT_EQ(host.files.changes(), changes);
}

// ---- Schedules.

const Publication& packed_to(std::uint64_t version) {
  static std::map<std::uint64_t, Publication> made;
  if (const auto found = made.find(version); found != made.end()) return found->second;
  return made.emplace(version, packed_payload(snapshot(version), 8192)).first->second;
}

/// One host, whose store is used and whose disk fails as a seed says.
class Schedule {
 public:
  explicit Schedule(std::uint64_t seed)
      : random_(seed),
        in_memory_(Random(seed ^ 0x6d656d6f7279).chance(0.4)),
        host_(random_.next(), {.files_kept_open = random_.between(1, 16),
                               .can_allocate = random_.chance(0.8),
                               .has_memory = in_memory_}) {
    if (in_memory_) host_.store_options.place.memory_directory = kVersionsInMemory;
    host_.store_options.log.patches_max = 3;
    host_.store_options.single_copy = random_.chance(0.4);
    host_.store_options.versions_kept = static_cast<std::uint32_t>(random_.between(1, 3));
    host_.store_options.reuse_files = random_.chance(0.7);
  }

  void run() {
    restart();
    const std::uint64_t steps = random_.between(3, 25);
    for (std::uint64_t i = 0; i < steps && !failed(); ++i) {
      change_faults();
      step();
      if (host_.store) host_.note_durable();
      look();
      if (host_.files.killed() || random_.chance(0.15)) crash();
    }
    if (failed()) return;
    crash();
    if (failed()) return;
    const std::uint64_t next = host_.store->current().value + 1;
    const Status received = host_.receive(snapshot(next));
    EXPECT_TRUE(received.has_value()) << "after all faults: " << received.error().message() << told();
    if (!received.has_value()) return;
    EXPECT_TRUE(host_.await_durable(Version{next}).has_value()) << told();
    EXPECT_TRUE(holds_ours(kState / "current", snapshot(next))) << told();
  }

 private:
  [[nodiscard]] static bool failed() { return testing::Test::HasFailure(); }

  void tell(const std::string& what) { told_ += "\n  " + what; }
  /// What happened so far.
  [[nodiscard]] const std::string& told() const { return told_; }

  void tell(const std::string& what, const Status& status) {
    tell(what + (status.has_value() ? "" : ": " + status.error().message()));
    EXPECT_TRUE(status.has_value() || status.error().code != Errc::kTimedOut || host_.files.killed() ||
                host_.store_options.single_copy)
        << "something never ended" << told();
  }

  void change_faults() {
    if (random_.chance(0.5)) return;
    FileFaults faults;
    faults.short_io = 0.1;
    switch (random_.below(7)) {
      case 0: break;
      case 1: faults.error = 0.01; break;
      case 2: faults.error = 0.1; break;
      case 3:
        faults.error = 0.03;
        faults.lossy_sync = 0.5;
        lossy_ = true;
        break;
      case 4: faults.no_space = 0.1; break;
      case 5: host_.files.fail_call(random_.between(1, 300), random_.chance(0.5) ? EIO : ENOSPC); break;
      case 6: host_.files.kill_before_change(host_.files.changes() + random_.between(1, 150)); break;
    }
    host_.files.set_faults(faults);
    host_.files.set_capacity(random_.chance(0.2) ? host_.files.used_bytes() + random_.below(60'000)
                                                 : SimFileSystem::kUnlimited);
    tell(fmt::format("faults: error {}, no space {}, lossy sync {}", faults.error, faults.no_space, faults.lossy_sync));
  }

  void step() {
    Store& store = *host_.store;
    const std::uint64_t current = store.current().value, next = current + 1;
    switch (random_.below(14)) {
      case 0:
      case 1: return tell(fmt::format("receive {}", next), host_.receive(snapshot(next)));
      case 2:
      case 3:
      case 4:
        if (current == 0) return;
        return tell(fmt::format("receive the patch to {}", next), host_.receive(patch_to(next)));
      case 5: return tell(fmt::format("receive {}, packed", next), host_.receive(packed_to(next)));
      case 6: {
        const Publication& p = current > 0 && random_.chance(0.5) ? patch_to(next) : snapshot(next);
        const Status begun = host_.begin(p.manifest).has_value() ? Status() : Status(fail(Errc::kIo, Op::kOpen, "no"));
        tell(fmt::format("begin {}", next), begun);
        if (begun.has_value()) tell("some chunks", host_.write(p, {0}));
        return;
      }
      case 7:
        tell(fmt::format("discard all of {}", next));
        for (const PayloadId payload :
             {PayloadId(Version{next}), packed_of(Version{next}), patch_to(next + 1).manifest.id()}) {
          store.discard(payload);
        }
        return;
      case 8: return tell(fmt::format("import {}", next), host_.import(snapshot(next)));
      case 9:
        if (current < 2) return;
        return tell(fmt::format("make the patch to {}", current), host_.make_patch(patch_to(current)));
      case 10: {
        std::vector<PayloadId> kept;
        for (const StoredVersion& stored : store.versions()) {
          if (random_.chance(0.5)) kept.emplace_back(stored.manifest.version);
        }
        for (const StoredPatch& patch : store.patches()) {
          if (random_.chance(0.5)) kept.push_back(patch.manifest.id());
        }
        tell(fmt::format("retain {} payloads", kept.size()));
        return store.retain(kept);
      }
      case 11:
      case 12: {
        const Duration time = random_.duration(Duration(0), std::chrono::seconds(30));
        tell(fmt::format("{:.3f} s pass", to_seconds(time)));
        static_cast<void>(host_.clock->run_until([this] { return host_.files.killed(); }, time));
        return;
      }
      case 13: return add_foreign();
    }
  }

  void add_foreign() {
    host_.files.observe([&](FileSystem& files) {
      if (!exists(files, kState / "current/a.safetensors")) return;
      const fs::path folder = random_.chance(0.5) ? kState / "current" : kState / "current" / "d";
      const fs::path path = folder / fmt::format(".nfs{}", ++foreign_made_);
      ++foreign_;
      const auto file = files.open(path, {.write = true, .create = Create::kNew});
      EXPECT_TRUE(file.has_value() && write_fully(**file, 0, std::as_bytes(std::span("mine")), "foreign").has_value());
      tell("a foreign file at " + path.native());
    });
  }

  void crash() {
    const bool power = random_.chance(0.5);
    tell("kill");
    if (!host_.files.killed()) host_.files.kill();
    host_.end_process();
    if (power) {
      cut_power();
    } else {
      host_.files.restart();
    }
    restart();
  }

  void cut_power() {
    tell("power cut");
    host_.files.power_cut();
    // Nobody had synced them.
    foreign_ = host_.files.observe([](FileSystem& files) { return foreign_names_anywhere(files); });
  }

  /// Starts that fail, or end in the middle, and one that has to succeed.
  void restart() {
    for (std::uint64_t i = random_.below(3); i > 0; --i) {
      host_.files.set_faults({});
      host_.files.set_capacity(SimFileSystem::kUnlimited);
      if (random_.chance(0.5)) {
        host_.files.fail_call(random_.between(1, 300), random_.chance(0.5) ? EIO : EACCES);
      } else {
        host_.files.kill_before_change(host_.files.changes() + random_.between(1, 20));
      }
      const bool started = host_.start();
      tell(started ? "a start in spite of all" : "no start: " + host_.open_error->message());
      host_.end_process();
      random_.chance(0.3) ? cut_power() : host_.files.restart();
    }
    host_.files.set_faults({});
    host_.files.set_capacity(SimFileSystem::kUnlimited);
    host_.files.restart();
    const bool started = host_.start();
    EXPECT_TRUE(started) << host_.open_error->message() << told();
    if (!started) return;
    lossy_ = false;
    tell("started: " + describe(*host_.store, host_.files));
    EXPECT_GE(host_.store->current(), host_.durable) << "a durable version is lost" << told();
    look();
    look_at_partial();
    EXPECT_EQ(host_.files.read_link(kState / "current").has_value(), host_.store->current() != kNoVersion) << told();
  }

  /// What holds at any time.
  void look() {
    host_.files.observe([&](FileSystem& files) {
      // What a sync has lost is noticed a moment later.
      const Result<fs::path> target = files.read_link(kState / "current");
      if (!lossy_ && target.has_value() && exists(files, kState / "current")) {
        const auto named = StoreLayout::named(target->filename().native());
        EXPECT_TRUE(named && named->payload.is_full() &&
                    holds_ours(kState / "current", snapshot(named->payload.version.value)))
            << "`current` leads to " << *target << ", which is not whole" << told();
      }
      if (!host_.store) return;
      for (const StoredVersion& stored : host_.store->versions()) {
        if (lossy_ && !stored.durable) continue;
        EXPECT_TRUE(holds_ours(stored.path, snapshot(stored.manifest.version.value)))
            << stored.path << " has other bytes" << told();
      }
      EXPECT_EQ(foreign_names_anywhere(files), foreign_) << "foreign files were deleted" << told();
    });
  }

  void look_at_partial() {
    for (const PartialVersion& partial : host_.store->partial()) {
      const std::uint64_t version = partial.manifest.version.value;
      const PayloadId id = partial.manifest.id();
      const Publication& whole = id.is_packed()  ? packed_to(version)
                                 : id.is_patch() ? patch_to(version)
                                                 : snapshot(version);
      for (auto i = partial.held.next_in(ChunkIndex{0}); i; i = partial.held.next_in(ChunkIndex{i->value + 1})) {
        const auto bytes = host_.await<BufferRef>([&](auto done) { host_.store->read_chunk(id, *i, std::move(done)); });
        EXPECT_TRUE(bytes.has_value() && content_digest_of((*bytes)->bytes()) == whole.digests[i->value])
            << to_string(id) << ", chunk " << i->value << told();
      }
    }
  }

  bool holds_ours(const fs::path& path, const Publication& p) {
    std::string stream;
    for (const SnapshotFile& file : p.manifest.files) {
      const Result<std::string> content = read_file(host_.files, path / file.name, kGiB);
      if (!content.has_value() || content->size() != file.size_bytes) return false;
      if (host_.files.info(path / file.name)->executable != file.executable) return false;
      stream += *content;
    }
    return stream == p.stream;
  }

  static std::uint64_t foreign_names_anywhere(FileSystem& files) {
    std::uint64_t count = 0;
    std::vector<fs::path> left{kState, kVersionsInMemory};
    while (!left.empty()) {
      const fs::path path = left.back();
      left.pop_back();
      const std::vector<std::string> names = files.list(path).value_or(std::vector<std::string>{});
      for (const std::string& name : names) {
        const Result<FileInfo> info = files.link_info(path / name);
        if (info.has_value() && info->is_directory()) left.push_back(path / name);
        if (name.starts_with(".nfs")) ++count;
      }
    }
    return count;
  }

  Random random_;
  const bool in_memory_;  // versions
  StoreHost host_;
  std::uint64_t foreign_ = 0, foreign_made_ = 0;
  bool lossy_ = false;  // a sync of this process may have lost something
  std::string told_;
};

// ---- A first start that fails.

TEST(StoreFirstStart, ThatFailsAtAnyCallCostsTheNextNothingThatIsDurable) {
  // The seed decides what a power cut leaves of names that were not synced.
  for (std::uint64_t run = 0; run < 125 * 8; ++run) {
    const std::uint64_t seed = run / 125, call = run % 125 + 1;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", call " << call << " fails");
    StoreHost host{seed, {.has_memory = true}};
    host.store_options.place.memory_directory = kVersionsInMemory;
    host.files.fail_call(call, EIO);
    const bool started = host.start();
    host.files.fail_no_call();
    ASSERT_TRUE(started || host.start());
    ASSERT_TRUE(host.receive_durably(snapshot(1)).has_value());
    host.end_process();
    host.files.power_cut();
    ASSERT_TRUE(host.start());
    ASSERT_EQ(host.store->current(), Version{1});
  }
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

TEST(StoreFaults, SchedulesBreakNothing) {
  const bool fresh = std::getenv("WEIGHTCAST_STORE_SCHEDULES") != nullptr;
  const std::uint64_t count = from_environment("WEIGHTCAST_STORE_SCHEDULES", 500);
  const auto now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
  const std::uint64_t first =
      from_environment("WEIGHTCAST_STORE_SEED", fresh ? static_cast<std::uint64_t>(now) * 100'000 : 1);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Schedule(seed).run();
    ASSERT_FALSE(HasFailure()) << "WEIGHTCAST_STORE_SCHEDULES=1 WEIGHTCAST_STORE_SEED=" << seed << " repeats it";
  }
}

TEST(StoreFaults, SchedulesThatOnceLostADurableVersionBreakNothing) {
  for (const std::uint64_t seed :
       {179582846201912, 179582942102150, 180060000026837, 180060000030204, 180060000035283}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Schedule(seed).run();
  }
}

}  // namespace
}  // namespace weightcast::sim
