// The last step of receiving or importing a version, whose calls of the disk fail.
#include <gtest/gtest.h>

#include <cerrno>

#include "sim/host/sim_file_system.h"
#include "tests/result_matchers.h"
#include "tests/sim/store_host.h"
#include "transport/io/store/store_layout.h"
#include "transport/io/store/store_work.h"

namespace weightcast::sim {
namespace {

const Version kOld{1}, kNew{2};

Manifest patch_manifest() {
  Manifest manifest;
  manifest.kind = PayloadKind::kPatch;
  manifest.base_version = kOld;
  manifest.version = kNew;
  manifest.chunk_bytes = kChunkBytesMin;
  manifest.payload_bytes = 10;
  manifest.files = {{"model.safetensors", 5}};
  return manifest;
}

/// A store that has version 1, and all of the patch to version 2 beside the files that it was applied to.
struct AppliedPatch {
  SimFileSystem files{1};
  StoreLayout layout{files, "/state"};
  Manifest manifest = patch_manifest();

  AppliedPatch() {
    EXPECT_TRUE(layout.create().has_value());
    EXPECT_TRUE(files.make_directory(layout.complete(kOld)).has_value());
    EXPECT_TRUE(layout.switch_current(kOld).has_value());
    EXPECT_TRUE(files.make_directory(layout.incoming(manifest.id())).has_value());
    apply();
  }
  /// As a try begins: whatever an earlier one has left in incoming/ goes.
  void apply() { EXPECT_TRUE(make_target(layout, manifest, nullptr).has_value()); }
  Result<double> install() { return install_patched(layout, manifest); }
};

TEST(InstallPatched, CanBeDoneAgainAfterAnyOfItsCallsHasFailed) {
  AppliedPatch whole;
  const std::uint64_t before = whole.files.calls();
  ASSERT_TRUE(whole.install().has_value());
  const std::uint64_t calls = whole.files.calls() - before;
  ASSERT_GT(calls, 5u);
  for (std::uint64_t call = 1; call <= calls; ++call) {
    AppliedPatch store;
    store.files.fail_call(call, EIO);
    const bool failed = !store.install().has_value();
    if (failed) {
      EXPECT_EQ(store.layout.read_current()->version, kOld) << call;
      store.apply();
      const auto again = store.install();
      EXPECT_TRUE(again.has_value()) << call << ": " << again.error().message();
    }
    EXPECT_EQ(store.layout.read_current()->version, kNew) << call;
    EXPECT_TRUE(exists(store.files, store.layout.current() / "model.safetensors")) << call;
    EXPECT_TRUE(exists(store.files, store.layout.patch(store.manifest.id()))) << call;
  }
}

TEST(InstallPatched, PutsThePatchInThePlaceOfALostVersionsWhateverFails) {
  for (std::uint64_t call = 1; call <= 20; ++call) {
    AppliedPatch store;
    const PayloadId patch = store.manifest.id();
    ASSERT_TRUE(store.files.make_directory(store.layout.patch(patch)).has_value());
    ASSERT_TRUE(store.files.make_directory(store.layout.incoming(patch) / "new").has_value());
    store.files.fail_call(call, EIO);
    const bool failed = !store.install().has_value();
    store.files.fail_call(1000, EIO);
    if (failed) {
      store.apply();
      const auto again = store.install();
      ASSERT_TRUE(again.has_value()) << call << ": " << again.error().message();
    }
    EXPECT_TRUE(exists(store.files, store.layout.patch(patch) / "new")) << call;
  }
}

TEST(InstallPatched, CanBeDoneAgainAfterACallAndItsUndoingHaveFailed) {
  // Every version and patch that a failed try may have moved lies where it was to go.
  AppliedPatch store;
  ASSERT_TRUE(store.install().has_value());
  store.apply();
  EXPECT_THAT(store.install(), Succeeds());
  EXPECT_TRUE(exists(store.files, store.layout.current() / "model.safetensors"));
}

TEST(StoreFinish, OfAWholeVersionCanBeDoneAgainThoughItsUndoingHasFailed) {
  int left_there = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    StoreHost host(seed);
    ASSERT_TRUE(host.start());
    ASSERT_TRUE(host.receive(snapshot(1)).has_value());
    ASSERT_TRUE(host.arrive(snapshot(2)).has_value());
    host.files.set_faults({.error = 0.1});
    const bool finished = host.finish(snapshot(2)).has_value();
    host.files.set_faults({});
    if (finished) continue;
    const StoreLayout layout(host.files, kState);
    left_there += exists(host.files, layout.complete(kNew)) ? 1 : 0;
    ASSERT_THAT(host.receive(snapshot(2)), Succeeds());
    EXPECT_TRUE(host.holds(layout.current(), snapshot(2)));
  }
  EXPECT_GT(left_there, 0);
}

TEST(StoreImport, ThatIsRefusedLeavesItsPlaceOnceTheDiskLetsItGo) {
  int left_there = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    StoreHost host(seed);
    ASSERT_TRUE(host.start());
    ASSERT_TRUE(host.import(snapshot(1)).has_value());
    host.files.set_faults({.error = 0.1});
    const Status imported = host.import(snapshot(2));
    if (imported.has_value()) continue;
    host.store->discard(kNew);
    host.pass(std::chrono::milliseconds(100));
    host.files.set_faults({});
    const StoreLayout layout(host.files, kState);
    left_there += exists(host.files, layout.complete(kNew)) ? 1 : 0;
    host.pass(std::chrono::seconds(2));
    EXPECT_FALSE(exists(host.files, layout.complete(kNew)));
    EXPECT_TRUE(host.holds(layout.current(), snapshot(1)));
  }
  EXPECT_GT(left_there, 0);
}

TEST(StoreImport, KeepsItsPlaceFromAPatchToTheSameVersion) {
  StoreHost host(1);
  ASSERT_TRUE(host.start());
  ASSERT_TRUE(host.receive(snapshot(1)).has_value());
  const Result<ImportTarget> target = host.await<ImportTarget>(
      [&](auto done) { host.store->begin_import(kNew, snapshot(2).manifest.files, std::move(done)); });
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(host.begin(patch_to(2).manifest).error().code, Errc::kBusy);
  host.store->discard(kNew);
  EXPECT_TRUE(host.begin(patch_to(2).manifest).has_value());
}

}  // namespace
}  // namespace weightcast::sim
