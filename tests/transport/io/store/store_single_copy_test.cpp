// Patches that take the place of the only copy: readers are waited for, and until then the old version is there.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>

#include "patch/snapshot/mapped_file.h"
#include "tests/result_matchers.h"
#include "tests/transport/io/store/store_patch_fixture.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

class SingleCopyTest : public StorePatchTest {
 protected:
  SingleCopyTest() { options_.single_copy = true; }
  void SetUp() override {
    StorePatchTest::SetUp();
    if (!IsSkipped()) await_durable(Version{1});
  }
  fs::path file(Version version) { return layout().complete(version) / "model.safetensors"; }
  void expect_patch_takes_place();
  void expect_readers_waited_for();
  /// Nothing but what version `p` needs.
  void expect_only(const Publication& p) {
    const Version version = p.manifest.version;
    EXPECT_EQ(store_->current(), version);
    EXPECT_TRUE(holds(directory() / "current", p));
    EXPECT_EQ(std::distance(fs::directory_iterator(layout().versions()), {}), 1);
    EXPECT_TRUE(fs::is_empty(layout().spare()));
    for (const auto& entry : fs::directory_iterator(layout().incoming())) {
      EXPECT_TRUE(StoreLayout::named(entry.path().filename().native())->payload.is_encoded()) << entry.path();
    }
  }
};

void SingleCopyTest::expect_patch_takes_place() {
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(file(Version{1}).c_str(), &before), 0);
  const Result<StoredVersion> stored = install(patch);
  ASSERT_TRUE(stored.has_value()) << stored.error().message();
  EXPECT_EQ(stored->manifest, patch.manifest);
  ASSERT_EQ(::stat(file(Version{2}).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(store_->find(Version{1}), nullptr);
  EXPECT_EQ(store_->pending_in_place_update(), kNoVersion);
  await_durable(Version{2});
  settle();
  expect_only(two);
  EXPECT_FALSE(fs::exists(layout().record(Version{1})));
  EXPECT_EQ(store_->patches().size(), 1u) << "for children";
}

// Listed cells, with and without the leaves of the base; segments in which most cells change; a start in between.
TEST_P(SingleCopyTest, StepsOfAnyKindFollowEachOther) {
  Publication from = one;
  for (std::uint64_t version = 2; version <= 6; ++version) {
    SCOPED_TRACE(version);
    const bool is_dense = version == 4 || version == 5;
    const Publication to = is_dense ? other_than(from, version) : next_of(from, version);
    const Result<StoredVersion> stored = install(version == 3 ? patch_of(from, to) : listed_patch(from, to));
    ASSERT_TRUE(stored.has_value()) << stored.error().message();
    ASSERT_NE(stored->leaves, nullptr);
    EXPECT_EQ(SnapshotDigest(*FileTable::make(to.manifest.files), *stored->leaves).root(), to.manifest.snapshot_digest);
    await_durable(to.manifest.version);
    settle();
    if (version == 5) open();
    expect_only(to);
    from = to;
  }
}

// Who looks for rot, and when, is tested beside.
TEST_P(SingleCopyTest, AStepReadsNoCellsButThoseThatItChanges) {
  options_.scrub_share = 0;
  open();
  ASSERT_TRUE(install(patch).has_value());  // which leaves are known of from now on
  await_durable(Version{2});
  const Publication three = next_of(two, 3);
  overwrite(file(Version{2}), kBytes / 2 + 1, "\xff");
  ASSERT_THAT(install(listed_patch(two, three)), Succeeds());
  std::string expected = three.stream;
  expected[kBytes / 2 + 1] = '\xff';
  EXPECT_EQ(*read_file(real_files(), file(Version{3}), kGiB), expected);
}

// The reader would be waited for for a minute. On a slow machine the rot is found before the step has begun. The step
// is gone from the store in the moment in which that is said: in between, children would be promised what is not there.
TEST_P(SingleCopyTest, RotThatIsFoundWhileReadersAreWaitedForEndsTheStep) {
  options_.scrub_share = 0.5;
  open();
  ASSERT_TRUE(install(patch).has_value());
  const FileRef reader = *real_files().open(file(Version{2}), {});
  overwrite(file(Version{2}), kBytes / 2 + 1, "\xff");
  const Publication step = listed_patch(two, next_of(two, 3));
  const Status ended = [&]() -> Status {
    WC_TRY(arrive(step));
    std::optional<Result<StoredVersion>> said;
    store_->finish(step.manifest.id(), [&](auto result) { said = std::move(result); });
    EXPECT_TRUE(eventually([&] { return said.has_value() || store_->partial().empty(); }));
    EXPECT_TRUE(said.has_value());
    WC_TRY(await(said));
    return {};
  }();
  EXPECT_THAT(ended, FailsWith(Errc::kWrongBase));
  settle();
  EXPECT_EQ(store_->current(), kNoVersion);
}

TEST_P(SingleCopyTest, WhatIsLeftOfAnotherPayloadOfTheVersionIsNotInItsWay) {
  ASSERT_TRUE(arrive(patch).has_value());
  // A packed payload that was given up when the disk had no room for another name in the trash.
  fs::create_directory(layout().incoming(Version{2}));
  std::ofstream(layout().incoming(Version{2}) / "model.safetensors") << "half of it";
  ASSERT_THAT(finish(patch), Succeeds());
  await_durable(Version{2});
  settle();
  expect_only(two);
}

TEST_P(SingleCopyTest, NothingIsTouchedBeforeThePatchIsWhole) {
  ASSERT_TRUE(arrive(patch, 0, patch.manifest.chunk_count() - 1).has_value());
  settle();
  expect_only(one);
}

void SingleCopyTest::expect_readers_waited_for() {
  Publication from = one;
  const auto readers = {
      std::function(
          [](const fs::path& path) -> std::shared_ptr<void> { return FileRef(*real_files().open(path, {})); }),
      std::function([](const fs::path& path) -> std::shared_ptr<void> {
        return std::make_shared<MappedFile>(std::move(*MappedFile::open(real_files(), path.native())));
      }),
      std::function([](const fs::path& path) -> std::shared_ptr<void> {
        const fs::path link = path.parent_path().parent_path().parent_path() / "kept";
        fs::create_hard_link(path, link);
        return {nullptr, [link](void*) { fs::remove(link); }};
      }),
      std::function([&](const fs::path&) -> std::shared_ptr<void> {
        store_->pin({from.manifest.version});
        return {nullptr, [this](void*) { store_->pin({}); }};
      }),
  };
  for (const auto& reader : readers) {
    const Publication to = next_of(from, from.manifest.version.value + 1);
    const Publication step = patch_of(from, to);
    std::shared_ptr<void> held = reader(file(from.manifest.version));
    ASSERT_TRUE(arrive(step).has_value());
    std::optional<Result<StoredVersion>> stored;
    store_->finish(step.manifest.id(), [&](auto r) { stored = std::move(r); });
    EXPECT_TRUE(eventually([&] { return store_->pending_in_place_update() == to.manifest.version; }));
    settle();
    EXPECT_FALSE(stored.has_value());
    expect_only(from);
    held.reset();
    ASSERT_TRUE(await(stored).has_value()) << stored->error().message();
    EXPECT_EQ(store_->pending_in_place_update(), kNoVersion);
    await_durable(to.manifest.version);
    expect_only(to);
    from = to;
  }
}

TEST_P(SingleCopyTest, WhoWaitsTooLongHearsWhoHasTheFilesAndMayTryAgain) {
  options_.single_copy_wait = std::chrono::milliseconds(100);
  open();
  const std::string me = "(process " + std::to_string(::getpid()) + ")";
  const fs::path link = directory() / "kept";
  FileRef opened = *real_files().open(file(Version{1}), {});
  EXPECT_THAT(install(patch), FailsWith(Errc::kTimedOut, me));
  settle();
  expect_only(one);
  std::optional<MappedFile> mapped = *MappedFile::open(real_files(), file(Version{1}).native());
  opened.reset();
  EXPECT_THAT(install(patch), FailsWith(Errc::kTimedOut, me));
  mapped.reset();
  fs::create_hard_link(file(Version{1}), link);
  EXPECT_THAT(install(patch), FailsWith(Errc::kTimedOut, "has another name"));
  EXPECT_EQ(store_->pending_in_place_update(), kNoVersion);
  fs::remove(link);
  ASSERT_TRUE(install(patch).has_value());
  await_durable(Version{2});
  expect_only(two);
}

TEST_P(SingleCopyTest, VersionThatWasWaitedForInVainMakesWayForANewerOne) {
  options_.single_copy_wait = std::chrono::milliseconds(100);
  open();
  FileRef reader = *real_files().open(file(Version{1}), {});
  EXPECT_THAT(install(patch), FailsWith(Errc::kTimedOut, "in use by"));
  reader.reset();
  const Publication three = next_of(two, 3);
  ASSERT_THAT(install(patch_of(one, three)), Succeeds());
  await_durable(Version{3});
  settle();
  expect_only(three);
  EXPECT_TRUE(store_->partial().empty());
}

// What is no version any more is dropped, and comes whole.
TEST_P(SingleCopyTest, APatchThatLeadsElsewhereCostsTheOnlyCopy) {
  std::string flipped = patch.stream;
  flipped[flipped.size() / 2] ^= 1;
  Publication lying = patch;
  lying.manifest.snapshot_digest = one.manifest.snapshot_digest;
  for (const Publication& bad :
       {payload_of(one, two, flipped), lying, payload_of(one, two, patch.stream.substr(0, patch.stream.size() - 1)),
        payload_of(one, two, patch.stream.substr(0, patch.stream.size() / 2))}) {
    Version lost{};
    store_->on_lost([&](Version version, const Error&) { lost = version; });
    EXPECT_THAT(install(bad), FailsWith(Errc::kWrongBase, "version 1 in", "is lost"));
    settle();
    EXPECT_EQ(lost, Version{1});
    EXPECT_EQ(store_->current(), kNoVersion);
    EXPECT_FALSE(fs::exists(fs::symlink_status(directory() / "current")));
    for (const fs::path& folder : {layout().versions(), layout().incoming(), layout().records()}) {
      EXPECT_TRUE(fs::is_empty(folder)) << folder;
    }
    ASSERT_THAT(install(one), Succeeds());
  }
  ASSERT_TRUE(install(patch).has_value());
  EXPECT_TRUE(holds(directory() / "current", two));
}

TEST_P(SingleCopyTest, ADamagedBaseIsDroppedAndTheWholeVersionRepairsIt) {
  overwrite(file(Version{1}), 2'000'000, "damage");
  EXPECT_THAT(install(patch), FailsWith(Errc::kWrongBase));
  settle();
  EXPECT_EQ(store_->current(), kNoVersion);
  ASSERT_TRUE(install(two).has_value());
  settle();
  expect_only(two);
}

TEST_P(SingleCopyTest, PatchToOtherFilesIsRefused) {
  Publication other = two;
  other.manifest.files = {{"model-1.safetensors", kBytes}};
  other.digest_snapshot();
  EXPECT_EQ(begin(patch_of(one, other)).error().code, Errc::kWrongBase);
  expect_only(one);
}

TEST_P(SingleCopyTest, PatchTakesThePlaceOfItsBase) { expect_patch_takes_place(); }
TEST_P(SingleCopyTest, WaitsForWhoeverHasTheFiles) { expect_readers_waited_for(); }

/// The same in a file system in memory.
class SingleCopyInMemoryTest : public SingleCopyTest {
 protected:
  SingleCopyInMemoryTest() { options_.place.memory_directory = fs::path(memory_.path()) / "versions-of-it"; }
  ~SingleCopyInMemoryTest() override { store_.reset(); }

 private:
  TempDir memory_{TempDir::in_memory()};
};

TEST_P(SingleCopyInMemoryTest, PatchTakesThePlaceOfItsBase) { expect_patch_takes_place(); }
TEST_P(SingleCopyInMemoryTest, WaitsForWhoeverHasTheFiles) { expect_readers_waited_for(); }

INSTANTIATE_TEST_SUITE_P(, SingleCopyTest, kBackends, backend_name);
INSTANTIATE_TEST_SUITE_P(, SingleCopyInMemoryTest, kBackends, backend_name);

}  // namespace
}  // namespace weightcast
