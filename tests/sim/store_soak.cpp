// sim_store_soak: random schedules of use and faults of one host's store. sim/soak.h has its flags.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "sim/host/run_version.h"
#include "sim/soak.h"
#include "sim/verdict.h"
#include "tests/sim/describe_store.h"
#include "tests/sim/store_host.h"
#include "transport/io/log.h"

namespace weightcast::sim {
namespace {

namespace fs = std::filesystem;

/// One host, whose store is used and whose disk fails as a seed says.
class Schedule {
 public:
  Schedule(std::uint64_t seed, bool verbose)
      : verbose_(verbose),
        verdict_(seed),
        random_(seed),
        in_memory_(Random(seed ^ 0x6d656d6f7279).chance(0.4)),
        host_(random_.next(), {.files_kept_open = random_.between(1, 16),
                               .can_allocate = random_.chance(0.8),
                               .has_memory = in_memory_}) {
    if (in_memory_) host_.store_options.place.memory_directory = kVersionsInMemory;
    // As much as an origin's, or a worker's.
    host_.store_options.keep_durable_every = static_cast<std::uint32_t>(Random(seed ^ 0x6b656570).below(4));
    host_.store_options.single_copy = random_.chance(0.4);
    host_.store_options.versions_kept = static_cast<std::uint32_t>(random_.between(1, 3));
    host_.store_options.reuse_files = random_.chance(0.7);
  }

  SoakOutcome run() {
    restart();
    const std::uint64_t steps = random_.between(3, 25);
    for (std::uint64_t i = 0; i < steps && !failed(); ++i) {
      change_faults();
      step();
      note_durable();
      look();
      if (host_.files.killed() || random_.chance(0.15)) crash();
    }
    if (!failed()) crash();
    if (!failed()) finish();
    return {verdict_.violation(), hash_, {starts_, power_cuts_, done_, refused_}};
  }

 private:
  [[nodiscard]] bool failed() const { return verdict_.violation().has_value(); }
  void demand(bool holds, const std::string& otherwise) {
    if (!holds) verdict_.violate(now(), otherwise);
  }

  /// Since the first process began.
  [[nodiscard]] Duration now() const {
    return ended_ + (host_.clock ? host_.clock->now() - SimClock::kStart : Duration(0));
  }
  void end_process() {
    ended_ = now();
    host_.end_process();
  }

  void tell(const std::string& what) {
    for (const char c : what) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    if (verbose_) fmt::print(stderr, "{:.6f} {}\n", to_seconds(now()), what);
    verdict_.remember(now(), what);
  }
  void tell(const std::string& what, const Status& status) {
    ++(status.has_value() ? done_ : refused_);
    tell(what + (status.has_value() ? "" : ": " + status.error().message()));
    demand(status.has_value() || status.error().code != Errc::kTimedOut || host_.files.killed() ||
               host_.store_options.single_copy,
           "something never ended");
  }

  void note_durable() {
    for (const StoredVersion& stored : host_.store->versions()) {
      if (stored.durable) durable_ = std::max(durable_, RunVersion(stored.run, stored.manifest.version));
    }
  }

  [[nodiscard]] Payloads& ours() const { return Payloads::of(host_.store->run().count); }

  /// After all faults the store takes a version.
  void finish() {
    const std::uint64_t next = host_.store->current().value + 1;
    const Status received = host_.receive_durably(ours().snapshot(next));
    demand(received.has_value(), "after all faults: " + (received.has_value() ? "" : received.error().message()));
    demand(failed() || holds_ours(kState / "current", ours().snapshot(next)),
           "after all faults `current` has other bytes");
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
    switch (random_.below(18)) {
      case 0:
      case 1: return tell(fmt::format("receive {}", next), host_.receive(ours().snapshot(next)));
      case 2:
      case 3:
      case 4:
        if (current == 0) return;
        // The only copy is lost if that ends in the middle.
        if (host_.store_options.single_copy) durable_ = {};
        return tell(fmt::format("receive the patch to {}", next), host_.receive(ours().patch_to(next)));
      case 5: return tell(fmt::format("receive {}, packed", next), host_.receive(ours().packed_to(next)));
      case 6: {
        const Publication& p = current > 0 && random_.chance(0.5) ? ours().patch_to(next) : ours().snapshot(next);
        const Status begun = host_.begin(p.manifest).has_value() ? Status() : Status(fail(Errc::kIo, Op::kOpen, "no"));
        tell(fmt::format("begin {}", next), begun);
        if (begun.has_value()) tell("some chunks", host_.write(p, {0}));
        return;
      }
      case 7:
        tell(fmt::format("discard all of {}", next));
        for (const PayloadId payload :
             {PayloadId(Version{next}), packed_of(Version{next}), ours().patch_to(next + 1).manifest.id()}) {
          store.discard(payload);
        }
        return;
      case 8: return tell(fmt::format("import {}", next), host_.import(ours().snapshot(next)));
      case 9:
        if (current < 2) return;
        return tell(fmt::format("make the patch to {}", current), host_.make_patch(ours().patch_to(current)));
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
      case 14:
        if (current == 0) return;
        return tell(fmt::format("import {} with its patch", next), import_with_patch(next));
      case 15:
        if (current == 0) return;
        return tell(fmt::format("tell of all chunks of {}", current), host_.await_status([&](auto done) {
          const Publication& whole = ours().snapshot(current);
          store.add_full_manifest(whole.manifest, whole.digests, std::move(done));
        }));
      case 16: return pin_some();
      case 17:
        if (random_.chance(0.5)) return;
        return follow_next_run();
    }
  }

  Status import_with_patch(std::uint64_t version) {
    const Publication& whole = ours().snapshot(version);
    const Publication& patch = ours().patch_to(version);
    Store& store = *host_.store;
    WC_ASSIGN(const ImportTarget target, host_.await<ImportTarget>([&](auto done) {
      store.begin_import(Version{version}, whole.manifest.files, std::move(done));
    }));
    WC_ASSIGN(const fs::path path,
              host_.await<fs::path>([&](auto done) { store.begin_patch(patch.manifest.id(), std::move(done)); }));
    WC_TRY(write_stream(*target.files, 0, whole.bytes()));
    WC_ASSIGN(const std::unique_ptr<File> file, host_.files.open(path, {.write = true}));
    WC_TRY(write_fully(*file, 0, patch.bytes(), path.native()));
    WC_TRY(host_.await<StoredVersion>(
        [&](auto done) { store.finish_patched_import(patch.manifest, patch.digests, std::move(done)); }));
    return {};
  }

  /// Until the process ends.
  void pin_some() {
    pinned_.clear();
    for (const StoredVersion& stored : host_.store->versions()) {
      if (random_.chance(0.5)) pinned_.push_back(stored.manifest.version);
    }
    host_.store->pin(pinned_);
    tell(fmt::format("pin {} versions", pinned_.size()));
  }

  void follow_next_run() {
    // An origin follows none, and no other keeps versions on the disk.
    if (host_.store->lies_in_memory() && host_.store_options.keep_durable_every > 0) return;
    const std::uint32_t next = host_.store->run().count + 1;
    const Status followed = host_.follow_run(next, true);
    tell(fmt::format("follow run {}", next), followed);
    if (!followed.has_value() || host_.files.killed()) return;
    end_process();
    restart();
  }

  void add_foreign() {
    host_.files.observe([&](FileSystem& files) {
      if (!exists(files, kState / "current/a.safetensors")) return;
      const fs::path folder = random_.chance(0.5) ? kState / "current" : kState / "current" / "d";
      const fs::path path = folder / fmt::format(".nfs{}", ++foreign_made_);
      ++foreign_;
      const auto file = files.open(path, {.write = true, .create = Create::kNew});
      WC_CHECK(file.has_value() && write_fully(**file, 0, std::as_bytes(std::span("mine")), "foreign").has_value());
      tell("a foreign file at " + path.native());
    });
  }

  void crash() {
    const bool power = random_.chance(0.5);
    tell("kill");
    if (!host_.files.killed()) host_.files.kill();
    end_process();
    if (power) {
      cut_power();
    } else {
      host_.files.restart();
    }
    restart();
  }

  void cut_power() {
    ++power_cuts_;
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
      end_process();
      random_.chance(0.3) ? cut_power() : host_.files.restart();
    }
    host_.files.set_faults({});
    host_.files.set_capacity(SimFileSystem::kUnlimited);
    host_.files.restart();
    if (in_memory_ && random_.chance(0.2)) move();
    if (!host_.start()) return verdict_.violate(now(), "no start without a fault: " + host_.open_error->message());
    // As the daemon does, whosever the files are.
    if (host_.store_options.place.memory_directory.empty()) {
      host_.files.observe([&](FileSystem& files) {
        WC_CHECK(remove_all(files, kVersionsInMemory).has_value());
        foreign_ = foreign_names_anywhere(files);
      });
    }
    ++starts_;
    lossy_ = false;
    pinned_.clear();
    tell("started: " + describe(*host_.store, host_.files));
    // Of the run before the last one nothing has to be left.
    demand(in_use(*host_.store) >= durable_ || durable_.first + 1 < host_.store->run().count,
           "a durable version is lost");
    // A worker's disk keeps nothing of the run before.
    if (host_.store->lies_in_memory() && host_.store->current() == kNoVersion) durable_ = {};
    look();
    look_at_partial();
    demand(host_.files.read_link(kState / "current").has_value() == (in_use(*host_.store) != RunVersion()),
           "`current` does not lead to what the store calls current");
  }

  /// The next process keeps versions in memory if this one had them on the disk, or the other way round.
  void move() {
    fs::path& directory = host_.store_options.place.memory_directory;
    directory = directory.empty() ? kVersionsInMemory : fs::path();
    tell(directory.empty() ? "versions move to the disk" : "versions move to memory");
    if (!directory.empty() && host_.store_options.keep_durable_every == 0) durable_ = {};
  }

  /// What holds at any time.
  void look() {
    host_.files.observe([&](FileSystem& files) {
      // The store notices a moment later what a sync has lost.
      const Result<fs::path> target = files.read_link(kState / "current");
      if (!lossy_ && target.has_value() && exists(files, kState / "current")) {
        const auto named = StoreLayout::named(target->filename().native());
        demand(named && named->payload.is_full() &&
                   holds_ours(kState / "current", Payloads::of(named->run).snapshot(named->payload.version.value)),
               "`current` leads to " + target->native() + ", which is not whole");
      }
      if (!host_.store) return;
      for (const StoredVersion& stored : host_.store->versions()) {
        if (lossy_ && !stored.durable) continue;
        demand(holds_ours(stored.path, Payloads::of(stored.run).snapshot(stored.manifest.version.value)),
               stored.path.native() + " has other bytes");
      }
      for (const Version version : pinned_) {
        demand(lossy_ || host_.store->find(version) != nullptr,
               fmt::format("version {} is pinned, and gone", version.value));
      }
      demand(foreign_names_anywhere(files) == foreign_, "foreign files were deleted");
    });
  }

  void look_at_partial() {
    for (const PartialVersion& partial : host_.store->partial()) {
      const std::uint64_t version = partial.manifest.version.value;
      const PayloadId id = partial.manifest.id();
      const Publication& whole = id.is_packed()  ? ours().packed_to(version)
                                 : id.is_patch() ? ours().patch_to(version)
                                                 : ours().snapshot(version);
      for (auto i = partial.held.next_in(ChunkIndex{0}); i; i = partial.held.next_in(ChunkIndex{i->value + 1})) {
        const auto bytes = host_.await<BufferRef>([&](auto done) { host_.store->read_chunk(id, *i, std::move(done)); });
        demand(bytes.has_value() && content_digest_of((*bytes)->bytes()) == whole.digests[i->value],
               fmt::format("{}, chunk {} is not what was held", to_string(id), i->value));
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

  const bool verbose_;
  Verdict verdict_;
  Random random_;
  const bool in_memory_;  // versions may lie there
  StoreHost host_;
  RunVersion durable_;  // the newest that was told to be so
  std::vector<Version> pinned_;
  std::uint64_t foreign_ = 0, foreign_made_ = 0;
  bool lossy_ = false;  // a sync of this process may have lost something
  Duration ended_{};    // when the last process did
  std::uint64_t hash_ = 0, starts_ = 0, power_cuts_ = 0, done_ = 0, refused_ = 0;
};

}  // namespace
}  // namespace weightcast::sim

int main(int argc, char** argv) {
  using namespace weightcast;
  using namespace weightcast::sim;
  Soak soak;
  soak.about = "Random faults of a disk, kills and power cuts against one host's store";
  soak.command = "./run soak --store";
  soak.schedules = "schedules of stores";
  soak.seeds_file = "tests/sim/store_seeds.txt";
  soak.counts = {"starts", "power cuts", "steps done", "steps refused"};
  soak.begin = [](bool verbose) { set_up_log(verbose ? "info" : "off", {LogFormat::kText, "sim_store_soak"}); };
  soak.run = [](std::uint64_t seed, bool verbose) { return Schedule(seed, verbose).run(); };
  return run_soak(soak, argc, argv);
}
