// Patches in a store: applied while they arrive, kept for children, and put in order after a crash at any moment.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "patch/snapshot/mapped_file.h"
#include "tests/damage_file.h"
#include "tests/result_matchers.h"
#include "tests/transport/io/store/store_patch_fixture.h"
#include "transport/io/store/store.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

TEST_P(StorePatchTest, AppliesWhatArrivedAndInstallsItBitForBit) {
  const Result<StoredVersion> stored = install(patch);
  ASSERT_TRUE(stored.has_value()) << stored.error().message();
  EXPECT_EQ(stored->manifest, patch.manifest);
  EXPECT_TRUE(holds(directory() / "current", two));
  EXPECT_TRUE(holds(layout().complete(Version{1}), one)) << "the base is untouched";
  ASSERT_EQ(store_->patches().size(), 1u);
  EXPECT_EQ(store_->patches()[0].chunk_digests, patch.digests);
}

TEST_P(StorePatchTest, PatchesFilesWhosePagesAndLeavesAreNotTheSegments) {
  const Publication three = publication(3, {{"a", 5'000'001}, {"empty", 0}, {"b", 4'500'001}}, 64 * 1024);
  const Publication four = next_of(three, 4);
  ASSERT_TRUE(install(three).has_value());
  ASSERT_THAT(install(patch_of(three, four)), Succeeds());
  EXPECT_TRUE(holds(directory() / "current", four));
}

// The code of a segment whose cells all changed is as long as they are: such segments are taken one at a time.
TEST_P(StorePatchTest, AppliesSegmentsWhoseCodeIsLong) {
  const Publication three = publication(3, {{"model.safetensors", 25'000'000}}, 1024 * 1024);
  const Publication four = publication(4, {{"model.safetensors", 25'000'000}}, 1024 * 1024);
  ASSERT_TRUE(install(three).has_value());
  Publication dense = patch_of(three, four, kSegmentBytesDefault);
  dense.manifest.chunk_bytes = 1024 * 1024;
  dense.digest_chunks();
  ASSERT_GT(dense.stream.size(), 24'000'000u);
  ASSERT_THAT(install(dense), Succeeds());
  EXPECT_TRUE(holds(directory() / "current", four));
}

TEST_P(StorePatchTest, TakesChunksInAnyOrder) {
  ASSERT_TRUE(begin(patch).has_value());
  put_digests(patch);
  std::vector<std::uint32_t> chunks(patch.manifest.chunk_count());
  std::iota(chunks.begin(), chunks.end(), 0);
  std::shuffle(chunks.begin(), chunks.end(), std::mt19937(3));
  for (const std::uint32_t chunk : chunks) ASSERT_TRUE(write(patch, chunk, chunk + 1).has_value());
  ASSERT_TRUE(finish(patch).has_value());
  EXPECT_TRUE(holds(directory() / "current", two));
}

TEST_P(StorePatchTest, SegmentsAreAppliedBeforeThePatchIsComplete) {
  ASSERT_TRUE(arrive(patch, 0, patch.manifest.chunk_count() - 1).has_value());
  EXPECT_TRUE(eventually_half_made(two));
}

TEST_P(StorePatchTest, ServesThePatchFromMemoryAndFromDisk) {
  for (const std::size_t cache_bytes : {std::size_t{16 * kMiB}, std::size_t{0}}) {
    store_.reset();
    fs::remove_all(directory());
    options_.cache_bytes_max = cache_bytes;
    open();
    ASSERT_TRUE(install(one).has_value());
    ASSERT_TRUE(install(patch).has_value());
    for (std::uint32_t i = 0; i < patch.manifest.chunk_count(); ++i) {
      const Result<BufferRef> bytes = read(id(), i);
      ASSERT_TRUE(bytes.has_value()) << bytes.error().message();
      EXPECT_EQ(content_digest_of((*bytes)->bytes()), patch.digests[i]);
    }
    EXPECT_EQ(read(Version{2}, 0).error().code, Errc::kNotFound) << "nobody knows the chunks of the full payload here";
  }
}

TEST_P(StorePatchTest, RestartAfterTheLastChunkAppliesThePatchAnew) {
  ASSERT_TRUE(arrive(patch).has_value());
  settle();
  open();
  EXPECT_FALSE(fs::exists(layout().incoming(Version{2}))) << "what was half made is thrown away";
  ASSERT_EQ(begin(patch)->held.count(), patch.manifest.chunk_count());
  ASSERT_TRUE(finish(patch).has_value());
  EXPECT_TRUE(holds(directory() / "current", two));
}

TEST_P(StorePatchTest, DamagedPatchIsNotServedAfterARestart) {
  ASSERT_TRUE(install(patch).has_value());
  await_durable(Version{2});
  store_.reset();
  overwrite(layout().patch(id()) / kPatchFileName, 100, "damage");
  open();
  EXPECT_TRUE(store_->patches().empty());
  EXPECT_EQ(store_->current(), Version{2});
}

TEST_P(StorePatchTest, BaseThatIsNotHereIsAWrongBase) {
  const Publication three = next_of(two, 3);
  EXPECT_EQ(begin(patch_of(two, three)).error().code, Errc::kWrongBase);
}

TEST_P(StorePatchTest, DamagedBaseIsToldApartAndLeavesEverythingAsItWas) {
  overwrite(layout().complete(Version{1}) / "model.safetensors", 2'000'000, "damage");
  EXPECT_THAT(install(patch), FailsWith(Errc::kWrongBase));
  EXPECT_EQ(store_->current(), Version{1});
  store_->discard(id());
  ASSERT_TRUE(install(two).has_value()) << "the whole version repairs it";
  EXPECT_TRUE(holds(directory() / "current", two));
}

TEST_P(StorePatchTest, BaseThatWasCutShortIsAWrongBase) {
  fs::resize_file(layout().complete(Version{1}) / "model.safetensors", 1'000'000);
  EXPECT_EQ(install(patch).error().code, Errc::kWrongBase);
}

TEST_P(StorePatchTest, PatchOfAnotherBaseUnderTheSameNumberIsAWrongBase) {
  Publication other = next_of(one, 7);
  other.manifest.version = Version{1};
  EXPECT_EQ(install(patch_of(other, next_of(other, 2))).error().code, Errc::kWrongBase);
}

TEST_P(StorePatchTest, BytesThatAreNoPatchAreCorruptThoughTheirChunksMatch) {
  for (const std::size_t cut : {std::size_t{10}, std::size_t{1000}, patch.stream.size() - 1}) {
    const Publication bad = payload_of(one, two, patch.stream.substr(0, cut));
    EXPECT_THAT(install(bad), FailsWith(Errc::kCorrupt)) << cut;
    store_->discard(bad.manifest.id());
  }
  std::string flipped = patch.stream;
  flipped[flipped.size() / 2] ^= 1;
  EXPECT_EQ(install(payload_of(one, two, flipped)).error().code, Errc::kCorrupt);
  EXPECT_EQ(store_->current(), Version{1});
  EXPECT_TRUE(holds(directory() / "current", one));
}

TEST_P(StorePatchTest, PatchToAnotherResultThanItsManifestSaysIsCorrupt) {
  Publication lying = patch;
  lying.manifest.snapshot_digest = one.manifest.snapshot_digest;
  EXPECT_EQ(install(lying).error().code, Errc::kCorrupt);
}

TEST_P(StorePatchTest, PayloadsOfOneVersionReplaceOneAnother) {
  ASSERT_TRUE(arrive(patch, 0, 2).has_value());
  ASSERT_TRUE(arrive(two, 0, 10).has_value());
  ASSERT_TRUE(install(patch).has_value());
  EXPECT_TRUE(holds(directory() / "current", two));
  settle();
  EXPECT_TRUE(fs::is_empty(directory() / "incoming"));
}

TEST_P(StorePatchTest, DiscardLeavesNothingAndTheBaseStays) {
  ASSERT_TRUE(arrive(patch).has_value());
  store_->discard(id());
  settle();
  EXPECT_TRUE(fs::is_empty(directory() / "incoming"));
  EXPECT_FALSE(fs::exists(layout().record(id())));
  EXPECT_TRUE(holds(directory() / "current", one));
}

TEST_P(StorePatchTest, WhatIsInUseStaysAndOtherPatchesGo) {
  options_.versions_kept = 1;
  open();
  store_->retain({Version{1}});
  ASSERT_TRUE(install(patch).has_value());
  settle();
  EXPECT_NE(store_->find(Version{1}), nullptr) << "it is in use";
  EXPECT_EQ(store_->patches().size(), 0u) << "it is not";
  EXPECT_FALSE(fs::exists(layout().patch(id())));
  EXPECT_NE(store_->find(Version{2}), nullptr);
  store_->retain({});
  settle();
  EXPECT_EQ(store_->find(Version{1}), nullptr);
  EXPECT_NE(store_->find(Version{2}), nullptr) << "the newest stays whatever is said";
}

TEST_P(StorePatchTest, BaseStaysWhileAPatchIsAppliedToIt) {
  options_.versions_kept = 1;
  open();
  const Publication nine = next_of(one, 9);
  ASSERT_TRUE(arrive(nine).has_value());
  ASSERT_TRUE(begin(patch).has_value());
  ASSERT_TRUE(finish(nine).has_value());
  settle();
  EXPECT_NE(store_->find(Version{1}), nullptr);
  store_->discard(id());
  store_->retain({});
  settle();
  EXPECT_EQ(store_->find(Version{1}), nullptr);
}

TEST_P(StorePatchTest, OriginPutsItsOwnPatchBesideTheVersions) {
  ASSERT_TRUE(install(two).has_value());
  const Result<fs::path> path = begin_patch();
  ASSERT_TRUE(path.has_value()) << path.error().message();
  std::ofstream(*path, std::ios::binary) << patch.stream;
  ASSERT_TRUE(finish_patch(patch).has_value());
  ASSERT_EQ(store_->patches().size(), 1u);
  EXPECT_EQ(store_->find(Version{2})->manifest, two.manifest) << "the version is what it was";
  open();
  ASSERT_EQ(store_->patches().size(), 1u);
  EXPECT_EQ(store_->patches()[0].manifest, patch.manifest);
}

/// The same in parts of two chunks, so that it can grow by them.
Publication in_small_parts(Publication p) {
  p.manifest.part_chunks = 2;
  p.manifest.part_digests = part_digests_of(p.digests, 2);
  return p;
}

/// What is known of it while `parts` parts are there.
Publication so_far(const Publication& whole, std::uint32_t parts) {
  Publication p = whole;
  p.manifest.open = true;
  p.manifest.payload_bytes = std::uint64_t{parts} * 2 * p.manifest.chunk_bytes;
  p.manifest.part_digests.resize(parts);
  return p;
}

struct StoreOpenPatchTest : StorePatchTest {
  const Publication whole = in_small_parts(patch);

  Status put_part(std::uint32_t part, const std::vector<std::uint32_t>& chunks) {
    store_->put_digest_part(id(), part, whole.digests_of(part));
    for (const std::uint32_t chunk : chunks) WC_TRY(write(whole, chunk, chunk + 1));
    return {};
  }
};

TEST_P(StoreOpenPatchTest, IsAppliedAsItGrowsAndInstalledAtItsEnd) {
  ASSERT_GT(whole.manifest.part_count(), 3u);
  ASSERT_TRUE(begin(so_far(whole, 0)).has_value());
  store_->grow(so_far(whole, 2).manifest);
  ASSERT_TRUE(put_part(1, {3, 2}).has_value());
  ASSERT_TRUE(put_part(0, {0, 1}).has_value());
  store_->grow(whole.manifest);
  ASSERT_TRUE(put(whole, 4, whole.manifest.chunk_count()).has_value());
  ASSERT_THAT(finish(whole), Succeeds());
  EXPECT_TRUE(holds(directory() / "current", two));
  open();
  ASSERT_EQ(store_->patches().size(), 1u) << "its record and its file are those of one that never was open";
  EXPECT_EQ(store_->patches()[0].manifest, whole.manifest);
  EXPECT_EQ(store_->current(), Version{2});
}

TEST_P(StoreOpenPatchTest, NothingIsKeptOverARestartBeforeItsEnd) {
  ASSERT_TRUE(begin(so_far(whole, 1)).has_value());
  ASSERT_TRUE(put_part(0, {0, 1}).has_value());
  settle();
  open();
  EXPECT_TRUE(store_->partial().empty());
  EXPECT_FALSE(fs::exists(layout().incoming(id())));
  EXPECT_FALSE(fs::exists(layout().incoming(Version{2})));
  EXPECT_EQ(begin(whole)->held.count(), 0u);
}

TEST_P(StoreOpenPatchTest, WhatIsHereIsKeptOverARestartAfterItsEnd) {
  ASSERT_TRUE(begin(so_far(whole, 1)).has_value());
  ASSERT_TRUE(put_part(0, {0, 1}).has_value());
  store_->grow(whole.manifest);
  ASSERT_TRUE(put_part(1, {2}).has_value());
  settle();
  open();
  EXPECT_EQ(begin(whole)->held.count(), 3u);
  ASSERT_TRUE(put(whole).has_value());
  ASSERT_TRUE(finish(whole).has_value());
  EXPECT_TRUE(holds(directory() / "current", two));
}

TEST_P(StoreOpenPatchTest, OriginServesWhatItHasMadeSoFar) {
  ASSERT_TRUE(install(two).has_value());
  const Result<fs::path> path = begin_patch();
  ASSERT_TRUE(path.has_value()) << path.error().message();
  std::ofstream file(*path, std::ios::binary);
  const auto half = 3 * whole.manifest.chunk_bytes;
  file << whole.stream.substr(0, half) << std::flush;
  store_->grow_making(so_far(whole, 1).manifest);
  for (const std::uint32_t chunk : {0u, 1u}) {
    const Result<BufferRef> bytes = read(id(), chunk);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message();
    EXPECT_EQ(content_digest_of((*bytes)->bytes()), whole.digests[chunk]);
  }
  EXPECT_EQ(read(id(), 2).error().code, Errc::kNotFound) << "of a part that is not whole";
  file << whole.stream.substr(half) << std::flush;
  ASSERT_TRUE(finish_patch(whole).has_value());
  EXPECT_EQ(content_digest_of((*read(id(), 2))->bytes()), whole.digests[2]);
}

TEST_P(StorePatchTest, ForgottenVersionsFilesAreWrittenAnew) {
  options_.versions_kept = 1;
  open();
  const auto inode = [](const fs::path& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
  };
  const auto first = inode(layout().complete(Version{1}) / "model.safetensors");
  install_and_settle(patch);
  const Publication three = next_of(two, 3);
  ASSERT_TRUE(install(patch_of(two, three)).has_value());
  EXPECT_EQ(inode(directory() / "current/model.safetensors"), first);
  EXPECT_TRUE(holds(directory() / "current", three));
}

/// Three versions after the first, each a patch from the one before; then the first one's files are spare.
class StoreSpareUpdateTest : public StorePatchTest {
 protected:
  void SetUp() override {
    StorePatchTest::SetUp();
    if (IsSkipped()) return;
    versions_.push_back(one);
    for (std::uint64_t v = 2; v <= 4; ++v) apply_next();
  }
  void apply_next() {
    add(next_of(versions_.back(), versions_.back().manifest.version.value + 1));
    install_and_settle(patch_to_last());
    EXPECT_TRUE(holds(directory() / "current", versions_.back()));
  }
  void add(Publication version) { versions_.push_back(std::move(version)); }
  [[nodiscard]] Publication patch_to_last() const { return patch_of(versions_.end()[-2], versions_.back()); }
  [[nodiscard]] fs::path base() const { return directory() / "current" / "model.safetensors"; }
  /// In a cell that no later version changes: next_of() changes the first byte of a cell alone.
  static void damage_middle(const fs::path& path) { flip_bit(path, kBytes / 2 + 1); }

  std::vector<Publication> versions_;
};

TEST_P(StoreSpareUpdateTest, SpareFilesBecomeTheNextVersionWhereTheyAre) {
  ASSERT_EQ(store_->spare(), Version{2});
  damage_middle(base());  // nobody reads it
  add(next_of(versions_.back(), 5));
  ASSERT_THAT(install(patch_to_last()), Succeeds());
  EXPECT_TRUE(holds(directory() / "current", versions_.back()));
}

TEST_P(StoreSpareUpdateTest, TheBaseIsReadWhereSpareFilesAreNotReused) {
  options_.reuse_files = false;
  open();
  damage_middle(base());
  add(next_of(versions_.back(), 5));
  EXPECT_EQ(install(patch_to_last()).error().code, Errc::kWrongBase);
}

TEST_P(StoreSpareUpdateTest, TheBaseIsReadWhereSpareFilesAreDamaged) {
  const fs::path spare = fs::directory_iterator(layout().spare())->path();
  damage_middle(spare / "model.safetensors");
  apply_next();
}

TEST_P(StoreSpareUpdateTest, TheBaseIsReadWhereAStepTellsNoChangesOrHasOtherSegments) {
  add(other_than(versions_.back(), 5));
  install_and_settle(patch_to_last());
  for (int i = 0; i < 3; ++i) apply_next();
  add(next_of(versions_.back(), 9));
  install_and_settle(patch_of(versions_.end()[-2], versions_.back(), 128 * 1024));
  EXPECT_TRUE(holds(directory() / "current", versions_.back()));
  for (int i = 0; i < 4; ++i) apply_next();
}

INSTANTIATE_TEST_SUITE_P(, StoreSpareUpdateTest, kBackends, backend_name);

// A byte that no patch changes: nobody else reads it.
TEST_P(StorePatchTest, RotInTheNewestVersionIsFoundAndTheVersionGivenUp) {
  options_.scrub_share = 0.5;
  open();
  std::optional<Version> lost;
  std::string why;
  store_->on_lost([&](Version version, const Error& error) {
    lost = version;
    why = error.message();
  });
  Publication last = one;
  // A version is read a moment after it is installed. A busy host may let that pass before its bytes rot.
  for (std::uint64_t version = 2; version < 8 && !lost; ++version) {
    const Publication next = next_of(last, version);
    ASSERT_TRUE(install(patch_of(last, next)).has_value());
    const fs::path file = layout().complete(Version{version}) / "model.safetensors";
    flip_bit(file, kBytes - 3);
    const Instant limit = loop_.now() + std::chrono::seconds(2);
    ASSERT_TRUE(eventually([&] { return lost.has_value() || loop_.now() > limit; }));
    if (lost) {
      EXPECT_EQ(lost, Version{version});
      EXPECT_EQ(store_->current(), Version{version - 1});
      EXPECT_EQ(store_->find(Version{version}), nullptr);
    } else {
      flip_bit(file, kBytes - 3);
      await_durable(Version{version});
    }
    last = next;
  }
  ASSERT_TRUE(lost.has_value());
  EXPECT_NE(why.find("is not what was written there"), std::string::npos) << why;
}

TEST_P(StorePatchTest, FilesThatAReaderHasAreLeftAsTheyAre) {
  options_.versions_kept = 1;
  for (const bool mapped : {false, true}) {
    for (const bool linked : {false, true}) {
      store_.reset();
      fs::remove_all(directory());
      open();
      ASSERT_TRUE(install(one).has_value());
      await_durable(Version{1});
      const fs::path path = layout().complete(Version{1}) / "model.safetensors";
      std::optional<MappedFile> reader;
      FileRef opened;
      if (linked) {
        fs::create_hard_link(path, directory() / "kept");
      } else if (mapped) {
        reader = *MappedFile::open(real_files(), path.string());
      } else {
        opened = *real_files().open(path, {});
      }
      install_and_settle(patch);
      const Publication three = next_of(two, 3);
      ASSERT_TRUE(install(patch_of(two, three)).has_value());
      EXPECT_TRUE(holds(directory() / "current", three));
      std::string seen(kBytes, '\0');
      if (linked) {
        seen = *read_file(real_files(), directory() / "kept", kGiB);
      } else if (mapped) {
        std::memcpy(seen.data(), reader->bytes().data(), kBytes);
      } else {
        ASSERT_TRUE(read_fully(*opened, 0, std::as_writable_bytes(std::span(seen)), "old").has_value());
      }
      EXPECT_EQ(seen, one.stream);
    }
  }
}

TEST_P(StorePatchTest, DirectoryThatAReaderHoldsDoesNotTurnIntoAnotherVersion) {
  options_.versions_kept = 1;
  open();
  const auto held = *real_files().open_directory(layout().complete(Version{1}));
  install_and_settle(patch);
  const Publication three = next_of(two, 3);
  ASSERT_TRUE(begin(patch_of(two, three)).has_value());
  EXPECT_FALSE(held->open("model.safetensors", {}).has_value());
}

TEST_P(StorePatchTest, SpareFilesMakeRoomForOthers) {
  options_.versions_kept = 1;
  open();
  install_and_settle(patch);
  EXPECT_FALSE(fs::is_empty(layout().spare()));
  ASSERT_TRUE(install(publication(3)).has_value()) << "which has other files";
  settle();
  EXPECT_TRUE(holds(directory() / "current", publication(3)));
  open();
  EXPECT_TRUE(fs::is_empty(layout().spare()));
}

TEST_P(SmallDiskTest, PatchThatFindsNoRoomLeavesNothingBehind) {
  fill();
  EXPECT_EQ(begin(patch).error().code, Errc::kNoSpace);
  EXPECT_TRUE(fs::is_empty(layout().incoming()));
  EXPECT_FALSE(fs::exists(layout().record(id())));
  EXPECT_TRUE(holds(directory() / "current", one));
  make_room();
  ASSERT_TRUE(install(patch).has_value());
  EXPECT_TRUE(holds(directory() / "current", two));
}

TEST_P(SmallDiskTest, PatchIsAppliedAnewWhenThereIsRoomAgain) {
  ASSERT_TRUE(begin(patch).has_value());
  // As where a file system cannot set blocks aside.
  const FileRef target = *real_files().open(layout().incoming(Version{2}) / "model.safetensors", {.write = true});
  ASSERT_EQ(::fallocate(target->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
  fill();
  Status status = put(patch);
  if (status.has_value()) {
    const Result<StoredVersion> stored = finish(patch);
    ASSERT_FALSE(stored.has_value());
    status = stored.error();
  }
  EXPECT_EQ(status.error().code, Errc::kNoSpace) << status.error().message();
  EXPECT_EQ(store_->current(), Version{1});
  EXPECT_TRUE(holds(directory() / "current", one));
  make_room();
  const Result<PartialVersion> begun = begin(patch);
  ASSERT_TRUE(begun.has_value()) << begun.error().message();
  EXPECT_GT(begun->held.count(), 0u) << "chunks that arrived are not fetched again";
  ASSERT_TRUE(put(patch).has_value());
  ASSERT_TRUE(finish(patch).has_value());
  EXPECT_TRUE(holds(directory() / "current", two));
}

INSTANTIATE_TEST_SUITE_P(, SmallDiskTest, kBackends, backend_name);
INSTANTIATE_TEST_SUITE_P(, StoreOpenPatchTest, kBackends, backend_name);
INSTANTIATE_TEST_SUITE_P(, StorePatchTest, kBackends, backend_name);

}  // namespace
}  // namespace weightcast
