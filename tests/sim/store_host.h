#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>

#include "sim/host/sim_disk.h"
#include "sim/host/sim_file_system.h"
#include "sim/host/sim_loop.h"
#include "tests/transport/io/store/store_patch_fixture.h"

namespace weightcast::sim {

inline const std::filesystem::path kState = "/state";
inline const std::filesystem::path kVersionsInMemory = std::filesystem::path(SimFileSystem::kMemory) / "store";

/// Small enough for thousands of runs, with several segments, chunks, files and directories all the same.
inline const std::vector<SnapshotFile> kFiles{{"a.safetensors", 30'000}, {"d/b", 9'000, true}, {"d/e/empty", 0}};

inline Publication tree_of(std::uint64_t version) {
  Publication p = publication(version, kFiles);
  p.manifest.file_tree = true;
  return p;
}

/// The payloads of one run. Those of two runs have other bytes; of runs that are four apart, the same.
class Payloads {
 public:
  explicit Payloads(std::uint32_t run) : run_(run) {}

  [[nodiscard]] const Publication& snapshot(std::uint64_t version) {
    return made(snapshots_, version, [&] {
      if (version > 1) return next_of(snapshot(version - 1), version);
      Publication first = tree_of(1 + 1000 * std::uint64_t(run_));
      first.manifest.version = Version{1};
      return first;
    });
  }
  /// Every other one lists its changes.
  [[nodiscard]] const Publication& patch_to(std::uint64_t version) {
    return made(patches_, version, [&] {
      const SparseForm form = version % 2 == 0 ? SparseForm::kListed : SparseForm::kModelled;
      return weightcast::patch_of(snapshot(version - 1), snapshot(version), 8192, form);
    });
  }
  [[nodiscard]] const Publication& packed_to(std::uint64_t version) {
    return made(packed_, version, [&] { return packed_payload(snapshot(version), 8192); });
  }

  [[nodiscard]] static Payloads& of(std::uint32_t run) {
    static std::array<Payloads, 4> runs{Payloads(0), Payloads(1), Payloads(2), Payloads(3)};
    return runs.at(run % runs.size());
  }

 private:
  using Made = std::map<std::uint64_t, Publication>;

  template <typename Make>
  static const Publication& made(Made& all, std::uint64_t version, Make make) {
    if (const auto found = all.find(version); found != all.end()) return found->second;
    return all.emplace(version, make()).first->second;
  }

  const std::uint32_t run_;
  Made snapshots_, patches_, packed_;
};

inline const Publication& snapshot(std::uint64_t version) { return Payloads::of(0).snapshot(version); }
inline const Publication& patch_to(std::uint64_t version) { return Payloads::of(0).patch_to(version); }

/// One host: its disk, and the process that has a store on it.
class StoreHost {
 public:
  explicit StoreHost(std::uint64_t seed, SimFileSystem::Options options = {}) : files(seed, options), seed_(seed) {
    store_options.directory = kState;
    store_options.versions_kept = 2;
  }
  ~StoreHost() { end_process(); }

  /// A new process. False if the store did not open.
  [[nodiscard]] bool start() {
    end_process();
    clock = std::make_unique<SimClock>(seed_ + ++starts_);
    loop = std::make_unique<SimLoop>(*clock);
    auto own_disk = std::make_unique<SimDisk>(*clock);
    disk = own_disk.get();
    auto opened = Store::open(*loop, files, store_options, std::move(own_disk));
    if (opened.has_value()) {
      store = std::move(*opened);
    } else {
      open_error = opened.error();
    }
    return store != nullptr;
  }
  void end_process() {
    store.reset();
    loop.reset();
    clock.reset();
  }

  void die() {
    end_process();
    files.kill();
    files.restart();
  }
  void cut_power() {
    end_process();
    files.power_cut();
  }

  void pass(Duration time) {
    static_cast<void>(clock->run_until([] { return false; }, time));
  }

  template <typename T>
  Result<T> await(const std::function<void(std::function<void(Result<T>)>)>& ask) {
    std::optional<Result<T>> result;
    ask([&](Result<T> r) { result = std::move(r); });
    if (!clock->run_until([&] { return result.has_value(); })) {
      return fail(Errc::kTimedOut, Op::kVerify, "nothing called back");
    }
    return *result;
  }

  Status await_status(const std::function<void(std::function<void(Status)>)>& ask) {
    WC_TRY(await<bool>(
        [&](auto done) { ask([done](const Status& s) { s.has_value() ? done(true) : done(s.error()); }); }));
    return {};
  }

  Result<PartialVersion> begin(const Manifest& manifest) {
    return await<PartialVersion>([&](auto done) { store->begin(manifest, std::move(done)); });
  }

  Status put(const Publication& p) {
    for (std::uint32_t part = 0; part < p.manifest.part_count(); ++part) {
      store->put_digest_part(p.manifest.id(), part, p.digests_of(part));
    }
    std::vector<std::uint32_t> chunks(p.manifest.chunk_count());
    std::iota(chunks.begin(), chunks.end(), 0);
    return write(p, chunks);
  }

  Status write(const Publication& p, const std::vector<std::uint32_t>& chunks) {
    std::size_t left = chunks.size();
    Status status;
    for (const std::uint32_t i : chunks) {
      store->write_chunk(p.manifest.id(), ChunkIndex{i}, p.chunk(ChunkIndex{i}), [&](const Status& s) {
        if (!s.has_value() && status.has_value()) status = s;
        --left;
      });
    }
    if (!clock->run_until([&] { return left == 0; }))
      return fail(Errc::kTimedOut, Op::kVerify, "writes that never end");
    return status;
  }

  Result<StoredVersion> finish(const Publication& p) {
    // The only copy changes where it is, and is lost if that ends in the middle.
    if (store_options.single_copy && p.manifest.id().is_patch()) durable = installed = {};
    return await<StoredVersion>([&](auto done) { store->finish(p.manifest.id(), std::move(done)); });
  }

  /// All of it but its end.
  Status arrive(const Publication& p) {
    WC_TRY(begin(p.manifest));
    return put(p);
  }

  Status receive(const Publication& p) {
    WC_TRY(arrive(p));
    WC_TRY(finish(p));
    note_durable();
    return {};
  }

  Status receive_durably(const Publication& p) {
    WC_TRY(receive(p));
    return await_durable(p.manifest.version);
  }

  /// A new process, which has version 1 and keeps what its store keeps by itself.
  Status start_with_first() {
    if (!start()) return *open_error;
    store->retain({});
    return receive_durably(snapshot(1));
  }

  Status import(const Publication& p) {
    const Version version = p.manifest.version;
    WC_ASSIGN(const ImportTarget target,
              await<ImportTarget>([&](auto done) { store->begin_import(version, p.manifest.files, std::move(done)); }));
    WC_TRY(write_stream(*target.files, 0, p.bytes()));
    WC_TRY(await<StoredVersion>([&](auto done) { store->finish_import(p.manifest, p.digests, std::move(done)); }));
    note_durable();
    return {};
  }

  Status make_patch(const Publication& p) {
    WC_ASSIGN(const std::filesystem::path path,
              await<std::filesystem::path>([&](auto done) { store->begin_patch(p.manifest.id(), std::move(done)); }));
    WC_ASSIGN(const std::unique_ptr<File> file, files.open(path, {.write = true}));
    WC_TRY(write_fully(*file, 0, p.bytes(), path.native()));
    return await_status([&](auto done) { store->finish_patch(p.manifest, p.digests, std::move(done)); });
  }

  Status follow_run(std::uint64_t run, bool anew) {
    return await_status([&](auto done) { store->follow_run(RunId{run}, anew, std::move(done)); });
  }

  /// With versions in memory: until what is to be kept on the disk is there.
  Status await_durable(Version version) {
    if (store->lies_in_memory()) {
      pass(std::chrono::seconds(1));
      note_durable();
      return {};
    }
    const bool so = clock->run_until([&] {
      const StoredVersion* stored = store->find(version);
      return stored == nullptr || stored->durable || files.killed();
    });
    note_durable();
    return so ? Status() : fail(Errc::kTimedOut, Op::kSync, "never durable");
  }

  /// Until a deleted version's files may be reused, or the process ends.
  void await_spare() {
    static_cast<void>(clock->run_until([&] { return store->spare() != kNoVersion || files.killed(); }));
  }

  void note_durable() {
    for (const StoredVersion& stored : store->versions()) {
      if (stored.durable) durable = std::max(durable, stored.manifest.version);
    }
    installed = std::max(installed, store->current());
  }

  /// Whether a directory holds exactly a version.
  bool holds(const std::filesystem::path& path, const Publication& p) {
    const Result<std::vector<std::string>> foreign = foreign_names(files, path, *FileTable::make(p.manifest.files));
    if (!foreign.has_value() || !foreign->empty()) return false;
    std::string stream;
    for (const SnapshotFile& file : p.manifest.files) {
      const Result<std::string> content = read_file(files, path / file.name, kGiB);
      if (!content.has_value() || content->size() != file.size_bytes) return false;
      stream += *content;
    }
    return stream == p.stream;
  }

  SimFileSystem files;
  StoreOptions store_options;
  std::unique_ptr<SimClock> clock;
  std::unique_ptr<SimLoop> loop;
  SimDisk* disk = nullptr;
  std::unique_ptr<Store> store;
  std::optional<Error> open_error;
  Version durable{};    ///< the newest that was reported so
  Version installed{};  ///< the newest that was current

 private:
  const std::uint64_t seed_;
  std::uint64_t starts_ = 0;
};

}  // namespace weightcast::sim
