// The real Store and its recovery on a simulated disk: killed, and without power, before every change of the disk in
// turn; then by seed.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>

#include "tests/result_matchers.h"
#include "tests/sanitizers.h"
#include "tests/sim/store_host.h"

namespace weightcast::sim {
namespace {

namespace fs = std::filesystem;

/// `current` leads to a whole version or to nothing, whoever looks and whenever, as long as the host has power.
void expect_current_whole(StoreHost& host) {
  const Result<fs::path> target = host.files.read_link(kState / "current");
  if (!target.has_value() || !exists(host.files, kState / "current")) return;
  const auto named = StoreLayout::named(target->filename().native());
  ASSERT_TRUE(named && named->payload.is_full()) << *target;
  EXPECT_TRUE(host.holds(kState / "current", snapshot(named->payload.version.value))) << *target;
}

/// A healthy store has nothing else. A version that is being made durable has files beside it for a moment.
void expect_tidy(StoreHost& host) {
  const StoreLayout layout(host.files, kState, host.store_options.place.memory_directory);
  std::string untidy;
  const auto names = [&](const fs::path& folder) {
    return host.files.list(folder).value_or(std::vector<std::string>{});
  };
  const auto is_tidy = [&] {
    untidy.clear();
    for (const std::string& name : names(layout.trash())) untidy += " trash/" + name;
    for (const std::string& name : names(layout.aside())) {
      if (name.find(".tmp") != name.npos) untidy += " aside/" + name;
    }
    if (host.files.link_info(kState / "current.tmp").has_value()) untidy += " current.tmp";
    for (const std::string& name : names(layout.records())) {
      const auto named = StoreLayout::named(name);
      const bool has_files =
          named && (exists(host.files, layout.incoming(named->payload)) ||
                    exists(host.files, named->payload.is_full() ? layout.complete(named->payload.version)
                                                                : layout.patch(named->payload)));
      if (!has_files) untidy += " records/" + name;
    }
    for (const std::string& name : names(layout.incoming())) {
      const auto named = StoreLayout::named(name);
      if (!named || !exists(host.files, layout.record(named->payload))) untidy += " incoming/" + name;
    }
    return untidy.empty();
  };
  EXPECT_TRUE(host.clock->run_until(is_tidy)) << untidy;
}

/// What has to hold of a store that was opened after a crash.
void expect_recovered(StoreHost& host) {
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
      EXPECT_EQ(content_digest_of((*bytes)->bytes()), whole.digests[chunk->value]);
    }
  }
  expect_tidy(host);
}

/// It goes on as if nothing had happened.
void expect_catches_up(StoreHost& host, std::uint64_t version) {
  ASSERT_THAT(host.receive(snapshot(version)), Succeeds());
  EXPECT_TRUE(host.holds(kState / "current", snapshot(version)));
  ASSERT_TRUE(host.await_durable(Version{version}).has_value());
  ASSERT_THAT(host.receive_durably(patch_to(version + 1)), Succeeds());
  EXPECT_TRUE(host.holds(kState / "current", snapshot(version + 1)));
  expect_recovered(host);
}

using Scenario = std::function<Status(StoreHost&)>;

const std::map<std::string, Scenario> kScenarios{
    {"Full",
     [](StoreHost& host) -> Status {
       for (const std::uint64_t v : {1, 2, 3}) WC_TRY(host.receive_durably(snapshot(v)));
       WC_TRY(host.receive(snapshot(4)));  // written to the files of version 2 or 1
       return host.receive(snapshot(5));   // while version 4 is being synced
     }},
    {"DiscardedAndBegunAgain",
     [](StoreHost& host) -> Status {
       WC_TRY(host.receive(snapshot(1)));
       WC_TRY(host.arrive(snapshot(2)));
       host.store->discard(Version{2});
       WC_TRY(host.arrive(snapshot(3)));
       return host.receive(snapshot(4));
     }},
    {"Patches",
     [](StoreHost& host) -> Status {
       WC_TRY(host.receive_durably(snapshot(1)));
       host.store->retain({});
       WC_TRY(host.receive(patch_to(2)));
       host.store->retain({patch_to(2).manifest.id()});
       WC_TRY(host.receive_durably(patch_to(3)));
       host.store->retain({patch_to(3).manifest.id()});
       return host.receive_durably(patch_to(4));
     }},
    {"PatchesToSpareFiles",
     [](StoreHost& host) -> Status {
       WC_TRY(host.receive_durably(snapshot(1)));
       host.store->retain({});
       for (const std::uint64_t v : {2, 3, 4}) WC_TRY(host.receive_durably(patch_to(v)));
       host.await_spare();
       return host.receive_durably(patch_to(5));
     }},
    {"OriginImportsAndMakesPatches",
     [](StoreHost& host) -> Status {
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
    {"InMemory",
     [](StoreHost& host) -> Status {
       WC_TRY(host.receive(snapshot(1)));
       host.store->retain({});
       for (const std::uint64_t v : {2, 3, 4}) WC_TRY(host.receive(patch_to(v)));
       host.await_spare();
       WC_TRY(host.receive(snapshot(6)));
       return host.receive(patch_to(7));
     }},
    {"InMemoryAtOrigin",
     [](StoreHost& host) -> Status {
       WC_TRY(host.import(snapshot(1)));
       WC_TRY(host.await_durable(Version{1}));  // it is kept on the disk
       WC_TRY(host.import(snapshot(2)));
       WC_TRY(host.make_patch(patch_to(2)));
       host.store->retain({patch_to(2).manifest.id(), Version{1}, Version{2}});
       WC_TRY(host.import(snapshot(3)));  // so is this one
       WC_TRY(host.make_patch(patch_to(3)));
       host.store->retain({patch_to(3).manifest.id()});
       WC_TRY(host.import(snapshot(4)));
       WC_TRY(host.await_durable(Version{4}));
       WC_TRY(host.import(snapshot(5)));
       return host.make_patch(patch_to(5));
     }},
    {"InMemorySingleCopy",
     [](StoreHost& host) -> Status {
       WC_TRY(host.receive(snapshot(1)));
       host.store->retain({});
       for (const std::uint64_t v : {2, 3, 4}) WC_TRY(host.receive(patch_to(v)));
       WC_TRY(host.receive(snapshot(6)));  // beside the only copy
       return host.receive(patch_to(7));
     }},
    {"SingleCopy",
     [](StoreHost& host) -> Status {
       WC_TRY(host.receive_durably(snapshot(1)));
       WC_TRY(host.receive_durably(patch_to(2)));
       WC_TRY(host.receive(patch_to(3)));
       return host.receive_durably(patch_to(4));
     }},
};

class StoreCrash : public testing::TestWithParam<std::string> {
 protected:
  static bool in_memory() { return GetParam().starts_with("InMemory"); }
  static SimFileSystem::Options disk() { return {.has_memory = in_memory()}; }
  static void prepare(StoreHost& host) {
    host.store_options.single_copy = GetParam().ends_with("SingleCopy");
    if (!in_memory()) return;
    host.store_options.place.memory_directory = kVersionsInMemory;
    host.store_options.keep_durable_every = GetParam() == "InMemoryAtOrigin" ? 2 : 0;
  }
  static Status run(StoreHost& host) {
    if (!host.start()) return *host.open_error;
    return kScenarios.at(GetParam())(host);
  }
  /// A host of each seed recovers from `crash` before any change of the disk that the scenario makes. Under
  /// AddressSanitizer one of the seeds does at each.
  static void expect_recovery(const std::vector<std::uint64_t>& seeds, const std::function<void(StoreHost&)>& crash) {
    StoreHost whole(1, disk());
    prepare(whole);
    EXPECT_TRUE(run(whole).has_value());
    for (std::uint64_t change = 1; change <= whole.files.changes(); ++change) {
      for (std::size_t i = 0; i < seeds.size(); ++i) {
        if (test::kUnderAddressSanitizer && change % seeds.size() != i) continue;
        const std::uint64_t seed = seeds[i];
        SCOPED_TRACE(testing::Message() << "change " << change << ", seed " << seed);
        StoreHost host(seed, disk());
        prepare(host);
        host.files.kill_before_change(change);
        static_cast<void>(run(host));
        if (host.store) host.note_durable();
        host.end_process();
        crash(host);
        ASSERT_TRUE(host.start()) << host.open_error->message();
        expect_recovered(host);
        expect_catches_up(host, 8);
        if (HasFailure()) return;
      }
    }
  }
};

TEST_P(StoreCrash, EndsWellWithoutACrash) {
  StoreHost host(1, disk());
  prepare(host);
  ASSERT_THAT(run(host), Succeeds());
  expect_current_whole(host);
  ASSERT_TRUE(host.start());
  expect_recovered(host);
}

// Which costs nothing that was installed.
TEST_P(StoreCrash, RecoversFromAKillBeforeAnyChange) {
  expect_recovery({1}, [](StoreHost& host) {
    host.files.restart();
    expect_current_whole(host);
    host.durable = std::max(host.durable, host.installed);
  });
}

TEST_P(StoreCrash, RecoversFromAPowerCutBeforeAnyChange) {
  expect_recovery({1, 1001, 2001, 3001, 4001, 5001}, [](StoreHost& host) { host.files.power_cut(); });
}

INSTANTIATE_TEST_SUITE_P(, StoreCrash,
                         testing::Values("Full", "DiscardedAndBegunAgain", "Patches", "PatchesToSpareFiles",
                                         "OriginImportsAndMakesPatches", "InMemory", "InMemoryAtOrigin",
                                         "InMemorySingleCopy", "SingleCopy"),
                         [](const auto& scenario) { return scenario.param; });

}  // namespace
}  // namespace weightcast::sim
