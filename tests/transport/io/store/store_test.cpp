#include "transport/io/store/store.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>

#include "base/files/posix_file_system.h"
#include "tests/base/descriptor_limit.h"
#include "tests/result_matchers.h"
#include "tests/transport/io/disk/faulty_disk.h"
#include "tests/transport/io/store/store_fixture.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

using StoreTest = StoreBackendFixture;

TEST_P(StoreTest, InstallsWhatArrivedBitForBit) {
  const Publication p = publication(7);
  open();
  const Result<StoredVersion> stored = install(p);
  ASSERT_TRUE(stored.has_value()) << stored.error().message();
  EXPECT_TRUE(holds(stored->path, p));
  EXPECT_TRUE(holds(directory() / "current", p));
  EXPECT_EQ(store_->current(), Version{7});
  EXPECT_EQ(stored->chunk_digests, p.digests);
  await_durable(Version{7});
  open();
  ASSERT_NE(store_->find(Version{7}), nullptr);
  EXPECT_TRUE(store_->find(Version{7})->durable);
  EXPECT_EQ(store_->find(Version{7})->manifest, p.manifest);
  EXPECT_EQ(store_->find(Version{7})->chunk_digests, p.digests);
}

TEST_P(StoreTest, ReadsEveryChunkFromMemoryAndFromDisk) {
  const Publication p = publication(7);
  for (const std::size_t cache_bytes : {std::size_t{16 * kMiB}, std::size_t{0}}) {
    fs::remove_all(directory());
    options_.cache_bytes_max = cache_bytes;
    open();
    ASSERT_TRUE(begin(p).has_value());
    put_digests(p);
    bool stored = false;
    store_->write_chunk(Version{7}, ChunkIndex{0}, p.chunk(ChunkIndex{0}), [&](const Status&) { stored = true; });
    // At once, before the disk has it, whatever the size of the cache.
    ASSERT_NE(store_->cached_chunk(Version{7}, ChunkIndex{0}), nullptr);
    EXPECT_FALSE(stored);
    ASSERT_TRUE(write(p, 1, p.manifest.chunk_count()).has_value());
    for (const bool finished : {false, true}) {
      if (finished) {
        ASSERT_TRUE(finish(p).has_value());
      }
      for (std::uint32_t i = 0; i < p.manifest.chunk_count(); ++i) {
        const Result<BufferRef> bytes = read(Version{7}, i);
        ASSERT_TRUE(bytes.has_value()) << bytes.error().message();
        EXPECT_EQ(content_digest_of((*bytes)->bytes()), p.digests[i]);
      }
    }
    store_.reset();
  }
}

TEST_P(StoreTest, RefusesChunksThatItDoesNotHave) {
  const Publication p = publication(7);
  open();
  EXPECT_EQ(read(Version{7}, 0).error().code, Errc::kNotFound);
  ASSERT_TRUE(begin(p).has_value());
  EXPECT_EQ(read(Version{7}, 0).error().code, Errc::kNotFound);
}

TEST_P(StoreTest, ResumesFromWhatIsOnDisk) {
  const Publication p = publication(7);
  open();
  ASSERT_TRUE(arrive(p, 3, 9).has_value());
  open();
  ASSERT_EQ(store_->partial().size(), 1u);
  const Result<PartialVersion> resumed = begin(p);
  ASSERT_TRUE(resumed.has_value());
  EXPECT_EQ(resumed->held.count(), 6u);
  EXPECT_EQ(resumed->held.next_in(ChunkIndex{0}), ChunkIndex{3});
  EXPECT_EQ(resumed->chunk_digests, p.digests);
  ASSERT_TRUE(write(p, 0, 3).has_value());
  ASSERT_TRUE(write(p, 9, p.manifest.chunk_count()).has_value());
  const Result<StoredVersion> stored = finish(p);
  ASSERT_TRUE(stored.has_value()) << stored.error().message();
  EXPECT_TRUE(holds(stored->path, p));
}

TEST_P(StoreTest, ThrowsAwayAPartUnderAnotherManifest) {
  const Publication p = publication(7);
  Publication other = publication(7, {{"x", 9'000}});
  open();
  ASSERT_TRUE(arrive(p, 0, 4).has_value());
  EXPECT_EQ(begin(other)->held.count(), 0u);
  ASSERT_TRUE(put(other).has_value());
  const Result<StoredVersion> stored = finish(other);
  ASSERT_TRUE(stored.has_value()) << stored.error().message();
  EXPECT_TRUE(holds(stored->path, other));
  EXPECT_EQ(begin(p).error().code, Errc::kAlreadyExists);
}

TEST_P(StoreTest, RefusesASnapshotThatDoesNotMatchItsDigest) {
  Publication p = publication(7);
  p.manifest.snapshot_digest.bytes[0] ^= std::byte{1};
  open();
  EXPECT_EQ(install(p).error().code, Errc::kCorrupt);
  EXPECT_EQ(store_->current(), kNoVersion);
  EXPECT_TRUE(store_->partial().empty());
  EXPECT_FALSE(fs::exists(directory() / "current"));
  // Thrown away on a pool thread; a store that ends before that finds the files again, and throws them away then.
  EXPECT_TRUE(eventually([&] { return !fs::exists(layout().record(p.manifest.version)); }));
  open();
  EXPECT_TRUE(store_->partial().empty());
}

TEST_P(StoreTest, NeverMovesCurrentBack) {
  open();
  ASSERT_TRUE(install(publication(9)).has_value());
  ASSERT_TRUE(install(publication(8)).has_value());
  EXPECT_EQ(store_->current(), Version{9});
  EXPECT_TRUE(holds(directory() / "current", publication(9)));
}

TEST_P(StoreTest, KeepsTheLastVersions) {
  open();
  for (const std::uint64_t v : {1, 2, 3, 5}) ASSERT_TRUE(install(publication(v)).has_value());
  EXPECT_TRUE(holds(directory() / "current", publication(5)));
  // Until then the newest durable one stays, too.
  await_durable(Version{5});
  ASSERT_EQ(store_->versions().size(), 2u);
  EXPECT_EQ(store_->versions()[0].manifest.version, Version{3});
  EXPECT_TRUE(eventually(
      [&] { return !fs::exists(layout().complete(Version{2})) && !fs::exists(layout().record(Version{2})); }));
  EXPECT_TRUE(holds(layout().complete(Version{3}), publication(3)));
}

TEST_P(StoreTest, KeepsPinnedVersionsBesideTheLast) {
  open();
  ASSERT_TRUE(install(publication(1)).has_value());
  store_->pin({Version{1}});
  for (const std::uint64_t v : {2, 3, 5}) ASSERT_TRUE(install(publication(v)).has_value());
  await_durable(Version{5});
  ASSERT_EQ(store_->versions().size(), 3u);
  EXPECT_TRUE(holds(layout().complete(Version{1}), publication(1)));
  store_->pin({});
  EXPECT_EQ(store_->versions().size(), 2u);
  EXPECT_TRUE(eventually([&] { return !fs::exists(layout().complete(Version{1})); }));
}

/// Few descriptors for this process, and a file system that knows it.
struct FewDescriptors {
  explicit FewDescriptors(rlim_t count) : limit(count) {}

  DescriptorLimit limit;
  PosixFileSystem files;
};

TEST_P(StoreTest, SnapshotMayHaveMoreFilesThanTheProcessMayOpen) {
  const auto few = std::make_shared<FewDescriptors>(128);
  outlives_loop_ = few;
  std::vector<SnapshotFile> table;
  for (int i = 0; i < 4'000; ++i) table.push_back({"file-" + std::to_string(i), 3});
  const Publication p = publication(1, table);  // a chunk spans some 1,400 files
  store_ = std::move(*Store::open(loop_, few->files, options_));
  ASSERT_THAT(install(p), Succeeds());
  EXPECT_LE(few->files.open_files().size(), few->files.open_files().files_max());
  EXPECT_TRUE(holds(directory() / "current", p));
  const Result<BufferRef> chunk = read(Version{1}, 1);
  ASSERT_TRUE(chunk.has_value()) << chunk.error().message();
  EXPECT_EQ(content_digest_of((*chunk)->bytes()), p.digests[1]);
  store_.reset();
}

TEST_P(StoreTest, ManyVersionsTakeFewDescriptors) {
  const auto few = std::make_shared<FewDescriptors>(256);
  outlives_loop_ = few;
  options_.versions_kept = 100;
  store_ = std::move(*Store::open(loop_, few->files, options_));
  for (std::uint64_t v = 1; v <= 100; ++v) {
    ASSERT_THAT(install(publication(v)), Succeeds());
  }
  for (std::uint64_t v = 1; v <= 100; ++v) {
    ASSERT_THAT(read(Version{v}, 3), Succeeds());
  }
  EXPECT_EQ(store_->versions().size(), 100u);
  store_.reset();
}

TEST_P(StoreTest, DiscardLeavesNothingAndTellsWhoWaits) {
  const Publication p = publication(7);
  open();
  ASSERT_TRUE(begin(p).has_value());
  std::optional<Status> wrote;
  store_->write_chunk(Version{7}, ChunkIndex{0}, p.chunk(ChunkIndex{0}), [&](Status s) { wrote = s; });
  store_->discard(Version{7});
  EXPECT_EQ(await(wrote).error().code, Errc::kNotFound);
  EXPECT_EQ(store_->cached_chunk(Version{7}, ChunkIndex{0}), nullptr);
  ASSERT_TRUE(install(p).has_value());  // after the discard, which therefore has ended
}

TEST_P(StoreTest, ImportsWhatTheCallerWrote) {
  const Publication p = publication(7);
  open();
  const Result<ImportTarget> target = begin_import(p);
  ASSERT_TRUE(target.has_value());
  const Bytes stream = std::as_bytes(std::span(p.stream));
  std::size_t at = 0;
  for (std::size_t i = 0; i < p.manifest.files.size(); ++i) {
    const FileRef file = *real_files().open(target->paths[i], {.write = true});
    ASSERT_TRUE(write_fully(*file, 0, stream.subspan(at, p.manifest.files[i].size_bytes), "file").has_value());
    at += p.manifest.files[i].size_bytes;
  }
  EXPECT_EQ(begin(p).error().code, Errc::kBusy);
  EXPECT_EQ(finish_import(p.manifest).error().code, Errc::kInvalidArgument);
  ASSERT_THAT(finish_import(p.manifest, p.digests), Succeeds());
  EXPECT_TRUE(holds(directory() / "current", p));
  EXPECT_EQ(content_digest_of((*read(Version{7}, 2))->bytes()), p.digests[2]);
  open();  // not synced yet, perhaps: looked at again
  EXPECT_EQ(store_->current(), Version{7});
}

/// Version 7 as a node makes it that publishes it by the patch from version 6.
struct StorePublishedPatch : OneStore {
  Publication whole = publication(7);
  Manifest patch = whole.manifest;

  void SetUp() override {
    open();
    patch.kind = PayloadKind::kPatch;
    patch.base_version = Version{6};
    patch.payload_bytes = kChunkBytesMin;
    patch.part_digests = part_digests_of({content_digest_of(whole.bytes().first(kChunkBytesMin))});
    const Result<ImportTarget> target = begin_import(whole);
    ASSERT_TRUE(target.has_value());
    ASSERT_TRUE(write_stream(*target->files, 0, whole.bytes()).has_value());
  }
  Manifest half() const {
    Manifest manifest = whole.manifest;
    manifest.open = true;
    manifest.part_chunks = 1;
    manifest.expected_bytes = std::exchange(manifest.payload_bytes, 3 * kChunkBytesMin);
    manifest.part_digests = part_digests_of({whole.digests.begin(), whole.digests.begin() + 3}, 1);
    manifest.snapshot_digest = {};
    return manifest;
  }
};

TEST_F(StorePublishedPatch, IsAVersionWithoutDigestsOverARestart) {
  EXPECT_EQ(finish_import(patch, whole.digests).error().code, Errc::kInvalidArgument);
  Manifest other = patch;
  other.files.pop_back();
  EXPECT_EQ(finish_import(other).error().code, Errc::kInvalidArgument);
  ASSERT_TRUE(finish_import(patch).has_value());
  await_durable(Version{7});
  open();
  ASSERT_NE(store_->find(Version{7}), nullptr);
  EXPECT_EQ(store_->find(Version{7})->manifest, patch);
  EXPECT_TRUE(store_->find(Version{7})->durable);
  EXPECT_TRUE(holds(directory() / "current", whole));
  EXPECT_EQ(read(Version{7}, 0).error().code, Errc::kNotFound);
}

TEST_F(StorePublishedPatch, IsReadAsFarAsItWasHashed) {
  ASSERT_TRUE(finish_import(patch).has_value());
  store_->grow_making(half());
  EXPECT_EQ(content_digest_of((*read(Version{7}, 2))->bytes()), whole.digests[2]);
  EXPECT_EQ(read(Version{7}, 3).error().code, Errc::kNotFound);
  store_->discard(Version{7});
  EXPECT_EQ(read(Version{7}, 2).error().code, Errc::kNotFound);
  EXPECT_NE(store_->find(Version{7}), nullptr);
}

TEST_F(StorePublishedPatch, HasItsDigestsOverARestartOnceTheyAreAdded) {
  EXPECT_EQ(add_full(whole.manifest, whole.digests).error().code, Errc::kNotFound);
  ASSERT_TRUE(finish_import(patch).has_value());
  store_->grow_making(half());
  EXPECT_EQ(add_full(half(), whole.digests).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(add_full(whole.manifest, {}).error().code, Errc::kInvalidArgument);
  Manifest other = whole.manifest;
  other.snapshot_digest = {};
  EXPECT_EQ(add_full(other, whole.digests).error().code, Errc::kInvalidArgument);
  ASSERT_TRUE(add_full(whole.manifest, whole.digests).has_value());
  await_durable(Version{7});
  open();
  ASSERT_NE(store_->find(Version{7}), nullptr);
  EXPECT_EQ(store_->find(Version{7})->manifest, whole.manifest);
  EXPECT_EQ(store_->find(Version{7})->chunk_digests, whole.digests);
  EXPECT_EQ(content_digest_of((*read(Version{7}, 3))->bytes()), whole.digests[3]);
}

TEST_P(StoreTest, SaysWhoHoldsTheLock) {
  open();
  EXPECT_THAT(Store::open(loop_, real_files(), options_), FailsWith(Errc::kBusy, std::to_string(::getpid())));
}

TEST_P(StoreTest, SaysThatTheDirectoryCannotBeWritten) {
  if (::geteuid() != 0) {
    options_.directory = "/proc/weightcast";
    EXPECT_FALSE(Store::open(loop_, real_files(), options_).has_value());
    return;
  }
  // Root may write anywhere but on a read-only mount.
  fs::create_directories(directory());
  if (::mount("none", directory().c_str(), "tmpfs", MS_RDONLY, "size=1m") != 0) GTEST_SKIP() << "cannot mount here";
  const Result<std::unique_ptr<Store>> refused = Store::open(loop_, real_files(), options_);
  ::umount(directory().c_str());
  EXPECT_THAT(refused, FailsWith(Errc::kNotAllowed));
}

TEST_P(StoreTest, LeavesNothingBehindWhenThereIsNoRoom) {
  fs::create_directories(directory());
  if (::mount("none", directory().c_str(), "tmpfs", 0, "size=2m") != 0) GTEST_SKIP() << "needs root, to mount a tmpfs";
  open();
  EXPECT_THAT(begin(publication(7, {{"a", 100'000}, {"b", 4 * kMiB}})), FailsWith(Errc::kNoSpace));
  EXPECT_TRUE(fs::is_empty(layout().incoming()));
  EXPECT_TRUE(fs::is_empty(layout().records()));
  EXPECT_TRUE(install(publication(8)).has_value());
  store_.reset();
  loop_.run_until(loop_.now());
  ::umount2(directory().c_str(), MNT_DETACH);
}

TEST_P(StoreTest, GoesOnAfterAWriteThatFailed) {
  const Publication p = publication(7);
  for (const Errc code : {Errc::kNoSpace, Errc::kIo}) {
    fs::remove_all(directory());
    auto faulty = std::make_unique<FaultyDisk>(*Disk::open(loop_, GetParam()));
    FaultyDisk& disk = *faulty;
    store_ = std::move(*Store::open(loop_, real_files(), options_, std::move(faulty)));
    ASSERT_TRUE(begin(p).has_value());
    disk.fail_after(5, code);
    const Status failed = put(p);
    ASSERT_THAT(failed, FailsWith(code, "version 7"));
    const bool advises = failed.error().detail.find("df -i for files") != std::string::npos;
    EXPECT_EQ(advises, code == Errc::kNoSpace) << failed.error().detail;
    const std::uint32_t held = begin(p)->held.count();
    EXPECT_EQ(held, p.manifest.chunk_count() - 1);
    ASSERT_TRUE(write(p).has_value());
    const Result<StoredVersion> stored = finish(p);
    ASSERT_TRUE(stored.has_value()) << stored.error().message();
    EXPECT_TRUE(holds(stored->path, p));
    store_.reset();
  }
}

INSTANTIATE_TEST_SUITE_P(, StoreTest, kBackends, backend_name);

}  // namespace
}  // namespace weightcast
