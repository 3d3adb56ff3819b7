#include "transport/node/payload/hash_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/damage_file.h"
#include "tests/transport/io/store/store_patch_fixture.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kHashedChunkBytes = 64 * 1024;

/// A store with version 1, which came whole, and version 2, which was published by a patch from it.
class HashVersionTest : public OneStore {
 protected:
  void SetUp() override {
    open();
    ASSERT_TRUE(install(first_).has_value());
    const Result<ImportTarget> target = begin_import(second_);
    ASSERT_TRUE(target.has_value());
    ASSERT_TRUE(write_stream(*target->files, 0, second_.bytes()).has_value());
    ASSERT_TRUE(finish_import(patch_of(first_, second_).manifest).has_value());
  }

  Result<MadePayload> hash(Version version = Version{2}) {
    std::optional<Result<MadePayload>> made;
    std::size_t reads = 0;
    told_.clear();
    PayloadObserver observer;
    observer.begun = [&](const std::shared_ptr<const Manifest>& manifest, double) { told_.push_back(*manifest); };
    observer.grown = [&](const MadePayload& grown) {
      told_.push_back(*grown.manifest);
      store_->read_chunk(version, ChunkIndex{0},
                         [&, due = grown.chunk_digests.front()](const Result<BufferRef>& chunk) {
                           EXPECT_TRUE(!chunk.has_value() || content_digest_of((*chunk)->bytes()) == due);
                           ++reads;
                         });
    };
    observer.done = [&](Result<MadePayload> done) { made = std::move(done); };
    hash_version(jobs_, real_files(), *store_, {version, {}, [](std::uint64_t) { return kHashedChunkBytes; }}, observer);
    EXPECT_TRUE(eventually([&] { return made.has_value() && reads + 1 >= told_.size(); }));
    return *made;
  }

  // Of many leaves, the last of which is short.
  Publication first_ = publication(1, {{"config.json", 100}, {"model.safetensors", 9 * kBytes}});
  Publication second_ = next_of(first_, 2);
  std::vector<Manifest> told_;
  Jobs jobs_{loop_};
};

TEST_F(HashVersionTest, MakesTheDigestsThatATakeoverWouldHaveMade) {
  const Result<MadePayload> made = hash();
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const Manifest& manifest = *made->manifest;
  EXPECT_EQ(manifest.id(), PayloadId(Version{2}));
  EXPECT_EQ(manifest.files, second_.manifest.files);
  EXPECT_EQ(manifest.snapshot_digest, second_.manifest.snapshot_digest);
  EXPECT_EQ(manifest.published_unix_ms, second_.manifest.published_unix_ms);
  ASSERT_EQ(made->chunk_digests.size(), manifest.chunk_count());
  for (std::uint32_t i = 0; i < manifest.chunk_count(); ++i) {
    const ChunkIndex chunk{i};
    EXPECT_EQ(made->chunk_digests[i],
              content_digest_of(second_.bytes().subspan(manifest.chunk_offset(chunk), manifest.chunk_size(chunk))));
  }
  for (const Manifest& earlier : told_) EXPECT_TRUE(earlier.open && continues(earlier, manifest));
  EXPECT_TRUE(holds(layout().complete(Version{2}), second_)) << "it copies and changes nothing";
}

TEST_F(HashVersionTest, IsNotNeededAfterARestart) {
  const Result<MadePayload> made = hash();
  ASSERT_TRUE(made.has_value());
  await_durable(Version{2});
  open();
  EXPECT_EQ(store_->find(Version{2})->manifest, *made->manifest);
  EXPECT_EQ(store_->find(Version{2})->chunk_digests, made->chunk_digests);
}

TEST_F(HashVersionTest, BytesThatWereNotPublishedAreFound) {
  const std::filesystem::path path = layout().complete(Version{2}) / "model.safetensors";
  flip_bit(path, 5'000'000);
  const Result<MadePayload> changed = hash();
  EXPECT_EQ(changed.error().code, Errc::kCorrupt);
  EXPECT_THAT(changed.error().detail, HasSubstr("not those that were published"));
  EXPECT_TRUE(store_->find(Version{2})->manifest.id().is_patch());
  EXPECT_EQ(read(Version{2}, 0).error().code, Errc::kNotFound) << "what was told is taken back";
  std::filesystem::resize_file(path, 1000);
  const Result<MadePayload> cut = hash();
  ASSERT_FALSE(cut.has_value());
  EXPECT_TRUE(cut.error().code == Errc::kCorrupt || cut.error().code == Errc::kIo) << cut.error().message();
}

TEST_F(HashVersionTest, VersionThatIsNotThereIsNotFound) { EXPECT_EQ(hash(Version{9}).error().code, Errc::kNotFound); }

}  // namespace
}  // namespace weightcast
