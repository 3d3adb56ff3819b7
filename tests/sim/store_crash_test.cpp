// The real Store and its recovery on a simulated disk: killed, and without power, before every change of the disk in
// turn; then by seed.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "sim/sim_disk.h"
#include "sim/sim_file_system.h"
#include "sim/sim_loop.h"
#include "tests/transport/io/store/store_patch_fixture.h"

namespace weightcast::sim {
namespace {

namespace fs = std::filesystem;

const fs::path kState = "/state";

/// Small enough for thousands of runs, with several segments, chunks and files all the same.
const std::vector<SnapshotFile> kFiles{{"a.safetensors", 30'000}, {"b", 9'000}, {"empty", 0}};

const Publication& snapshot(std::uint64_t version) {
  static std::map<std::uint64_t, Publication> made;
  if (const auto found = made.find(version); found != made.end()) return found->second;
  Publication p = version == 1 ? publication(1, kFiles) : next_of(snapshot(version - 1), version);
  return made.emplace(version, std::move(p)).first->second;
}

const Publication& patch_to(std::uint64_t version) {
  static std::map<std::uint64_t, Publication> made;
  if (const auto found = made.find(version); found != made.end()) return found->second;
  Publication p = weightcast::patch_of(snapshot(version - 1), snapshot(version), 8192);
  return made.emplace(version, std::move(p)).first->second;
}

/// One host: its disk, and the process that has a store on it.
class Host {
 public:
  explicit Host(std::uint64_t seed, SimFileSystem::Options options = {}) : files(seed, options), seed_(seed) {
    store_options.directory = kState;
    store_options.versions_kept = 2;
  }
  ~Host() { end_process(); }

  /// A new process. False if the store did not open.
  [[nodiscard]] bool start() {
    end_process();
    loop = std::make_unique<SimLoop>(seed_ + ++starts_);
    auto own_disk = std::make_unique<SimDisk>(*loop);
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
  }

  template <typename T>
  Result<T> await(const std::function<void(std::function<void(Result<T>)>)>& ask) {
    std::optional<Result<T>> result;
    ask([&](Result<T> r) { result = std::move(r); });
    if (!loop->run_until([&] { return result.has_value(); })) {
      return fail(Errc::kTimedOut, Op::kVerify, "nothing called back");
    }
    return *result;
  }

  Result<PartialVersion> begin(const Manifest& manifest) {
    return await<PartialVersion>([&](auto done) { store->begin(manifest, std::move(done)); });
  }

  Status put(const Publication& p) {
    for (std::uint32_t part = 0; part < p.manifest.part_count(); ++part) {
      const std::size_t first = std::size_t{part} * p.manifest.part_chunks;
      const std::size_t count = std::min<std::size_t>(p.manifest.part_chunks, p.digests.size() - first);
      const auto begin = p.digests.begin() + std::ptrdiff_t(first);
      store->put_digest_part(p.manifest.id(), part, {begin, begin + std::ptrdiff_t(count)});
    }
    std::uint32_t left = p.manifest.chunk_count();
    Status status;
    for (std::uint32_t i = 0; i < p.manifest.chunk_count(); ++i) {
      store->write_chunk(p.manifest.id(), ChunkIndex{i}, p.chunk(ChunkIndex{i}), [&](const Status& s) {
        if (!s.has_value() && status.has_value()) status = s;
        --left;
      });
    }
    if (!loop->run_until([&] { return left == 0; })) return fail(Errc::kTimedOut, Op::kVerify, "writes that never end");
    return status;
  }

  Status receive(const Publication& p) {
    WC_TRY(begin(p.manifest));
    WC_TRY(put(p));
    WC_TRY(await<StoredVersion>([&](auto done) { store->finish(p.manifest.id(), std::move(done)); }));
    note_durable();
    return {};
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
    WC_ASSIGN(const fs::path path,
              await<fs::path>([&](auto done) { store->begin_patch(p.manifest.id(), std::move(done)); }));
    WC_ASSIGN(const std::unique_ptr<File> file, files.open(path, {.write = true}));
    WC_TRY(write_fully(*file, 0, p.bytes(), path.native()));
    WC_TRY(await<bool>([&](auto done) {
      store->finish_patch(p.manifest, p.digests,
                          [done](const Status& s) { s.has_value() ? done(true) : done(s.error()); });
    }));
    return {};
  }

  Status await_durable(Version version) {
    const bool so = loop->run_until([&] {
      const StoredVersion* stored = store->find(version);
      return stored == nullptr || stored->durable || files.killed();
    });
    note_durable();
    return so ? Status() : fail(Errc::kTimedOut, Op::kSync, "never durable");
  }

  void note_durable() {
    for (const StoredVersion& stored : store->versions()) {
      if (stored.durable) durable = std::max(durable, stored.manifest.version);
    }
  }

  /// Whether a directory holds exactly a version.
  bool holds(const fs::path& path, const Publication& p) {
    const Result<std::vector<std::string>> names = files.list(path);
    if (!names.has_value() || names->size() != p.manifest.files.size()) return false;
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
  std::unique_ptr<SimLoop> loop;
  SimDisk* disk = nullptr;
  std::unique_ptr<Store> store;
  std::optional<Error> open_error;
  Version durable{};  ///< the newest that was reported so

 private:
  const std::uint64_t seed_;
  std::uint64_t starts_ = 0;
};

/// `current` leads to a whole version or to nothing, whoever looks and whenever, as long as the host has power.
void expect_current_whole(Host& host) {
  const Result<fs::path> target = host.files.read_link(kState / "current");
  if (!target.has_value() || !exists(host.files, kState / "current")) return;
  const auto named = StoreLayout::payload_of(target->filename().native());
  ASSERT_TRUE(named && named->is_full()) << *target;
  EXPECT_TRUE(host.holds(kState / "current", snapshot(named->version.value))) << *target;
}

/// What has to hold of a store that was opened after a crash.
void expect_recovered(Host& host) {
  Store& store = *host.store;
  Version newest{};
  for (const StoredVersion& stored : store.versions()) {
    const Version version = stored.manifest.version;
    newest = std::max(newest, version);
    EXPECT_TRUE(host.holds(stored.path, snapshot(version.value))) << "version " << version.value << " has other bytes";
    EXPECT_EQ(stored.manifest.snapshot_digest, snapshot(version.value).manifest.snapshot_digest);
  }
  EXPECT_EQ(store.current(), newest);
  EXPECT_GE(newest, host.durable) << "a durable version is lost";
  const Result<fs::path> target = host.files.read_link(kState / "current");
  EXPECT_EQ(target.has_value(), newest != kNoVersion);
  if (newest != kNoVersion) {
    EXPECT_TRUE(host.holds(kState / "current", snapshot(newest.value)));
  }
  for (const StoredPatch& patch : store.patches()) {
    // Those in between may have been forgotten; to one beyond the newest there is another way by now, perhaps.
    EXPECT_LE(patch.manifest.version, newest) << "a patch leads to a version that was never here";
    EXPECT_EQ(patch.manifest, patch_to(patch.manifest.version.value).manifest);
  }
  for (const PartialVersion& partial : store.partial()) {
    const Publication& whole = partial.manifest.id().is_patch() ? patch_to(partial.manifest.version.value)
                                                                : snapshot(partial.manifest.version.value);
    for (auto chunk = partial.held.next_in(ChunkIndex{0}); chunk;
         chunk = partial.held.next_in(ChunkIndex{chunk->value + 1})) {
      const auto bytes =
          host.await<BufferRef>([&](auto done) { store.read_chunk(partial.manifest.id(), *chunk, std::move(done)); });
      ASSERT_TRUE(bytes.has_value()) << bytes.error().message();
      EXPECT_EQ(digest_of((*bytes)->bytes()), whole.digests[chunk->value]);
    }
  }
}

/// It goes on as if nothing had happened.
void expect_catches_up(Host& host, std::uint64_t version) {
  const Status received = host.receive(snapshot(version));
  ASSERT_TRUE(received.has_value()) << received.error().message();
  EXPECT_TRUE(host.holds(kState / "current", snapshot(version)));
  const Status patched = host.await_durable(Version{version});
  ASSERT_TRUE(patched.has_value());
  const Status next = host.receive(patch_to(version + 1));
  ASSERT_TRUE(next.has_value()) << next.error().message();
  ASSERT_TRUE(host.await_durable(Version{version + 1}).has_value());
  EXPECT_TRUE(host.holds(kState / "current", snapshot(version + 1)));
  expect_recovered(host);
}

using Scenario = std::function<Status(Host&)>;

Status receive_and_settle(Host& host, const Publication& p) {
  WC_TRY(host.receive(p));
  return host.await_durable(p.manifest.version);
}

const std::map<std::string, Scenario> kScenarios{
    {"Full",
     [](Host& host) -> Status {
       for (const std::uint64_t v : {1, 2, 3}) WC_TRY(receive_and_settle(host, snapshot(v)));
       WC_TRY(host.receive(snapshot(4)));  // written to the files of version 2 or 1
       return host.receive(snapshot(5));   // while version 4 is being synced
     }},
    {"DiscardedAndBegunAgain",
     [](Host& host) -> Status {
       WC_TRY(host.receive(snapshot(1)));
       WC_TRY(host.begin(snapshot(2).manifest));
       WC_TRY(host.put(snapshot(2)));
       host.store->discard(Version{2});
       WC_TRY(host.begin(snapshot(3).manifest));
       WC_TRY(host.put(snapshot(3)));
       return host.receive(snapshot(4));
     }},
    {"Patches",
     [](Host& host) -> Status {
       WC_TRY(receive_and_settle(host, snapshot(1)));
       host.store->retain({});
       WC_TRY(host.receive(patch_to(2)));
       host.store->retain({patch_to(2).manifest.id()});
       WC_TRY(receive_and_settle(host, patch_to(3)));
       host.store->retain({patch_to(3).manifest.id()});
       return receive_and_settle(host, patch_to(4));
     }},
    {"OriginImportsAndMakesPatches",
     [](Host& host) -> Status {
       WC_TRY(host.import(snapshot(1)));
       WC_TRY(host.import(snapshot(2)));
       WC_TRY(host.make_patch(patch_to(2)));
       host.store->retain({patch_to(2).manifest.id(), Version{1}, Version{2}});
       WC_TRY(host.import(snapshot(3)));
       WC_TRY(host.make_patch(patch_to(3)));
       host.store->retain({patch_to(3).manifest.id()});
       WC_TRY(host.await_durable(Version{3}));
       return host.import(snapshot(4));
     }},
    {"SingleCopy",
     [](Host& host) -> Status {
       WC_TRY(receive_and_settle(host, snapshot(1)));
       WC_TRY(receive_and_settle(host, patch_to(2)));
       WC_TRY(host.receive(patch_to(3)));
       return receive_and_settle(host, patch_to(4));
     }},
};

class StoreCrash : public testing::TestWithParam<std::string> {
 protected:
  static void prepare(Host& host) { host.store_options.single_copy = GetParam() == "SingleCopy"; }
  static Status run(Host& host) {
    if (!host.start()) return *host.open_error;
    return kScenarios.at(GetParam())(host);
  }
};

TEST_P(StoreCrash, EndsWellWithoutACrash) {
  Host host(1);
  prepare(host);
  const Status ran = run(host);
  ASSERT_TRUE(ran.has_value()) << ran.error().message();
  expect_current_whole(host);
  ASSERT_TRUE(host.start());
  expect_recovered(host);
}

/// How many changes of the disk the scenario makes.
std::uint64_t count_changes(const std::function<void(Host&)>& prepare, const std::function<Status(Host&)>& run) {
  Host host(1);
  prepare(host);
  EXPECT_TRUE(run(host).has_value());
  return host.files.changes();
}

TEST_P(StoreCrash, RecoversFromAKillBeforeAnyChange) {
  const std::uint64_t changes = count_changes(prepare, run);
  for (std::uint64_t change = 1; change <= changes; ++change) {
    SCOPED_TRACE(change);
    Host host(1);
    prepare(host);
    host.files.kill_before_change(change);
    static_cast<void>(run(host));
    if (host.store) host.note_durable();
    host.end_process();
    host.files.restart();
    expect_current_whole(host);
    ASSERT_TRUE(host.start()) << host.open_error->message();
    expect_recovered(host);
    expect_catches_up(host, 7);
    if (HasFailure()) return;
  }
}

TEST_P(StoreCrash, RecoversFromAPowerCutBeforeAnyChange) {
  const std::uint64_t changes = count_changes(prepare, run);
  for (std::uint64_t change = 1; change <= changes; ++change) {
    for (std::uint64_t cut = 0; cut < 6; ++cut) {
      SCOPED_TRACE(testing::Message() << "change " << change << ", cut " << cut);
      Host host(1 + 1000 * cut);
      prepare(host);
      host.files.kill_before_change(change);
      static_cast<void>(run(host));
      if (host.store) host.note_durable();
      host.end_process();
      host.files.power_cut();
      ASSERT_TRUE(host.start()) << host.open_error->message();
      expect_recovered(host);
      expect_catches_up(host, 7);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, StoreCrash,
                         testing::Values("Full", "DiscardedAndBegunAgain", "Patches", "OriginImportsAndMakesPatches",
                                         "SingleCopy"),
                         [](const auto& scenario) { return scenario.param; });

}  // namespace
}  // namespace weightcast::sim
