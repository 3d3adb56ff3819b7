// Packed full payloads in a store: unpacked while they arrive, kept for children, and put in order after a crash.
#include <algorithm>
#include <filesystem>

#include "patch/snapshot/mapped_file.h"
#include "tests/result_matchers.h"
#include "tests/transport/io/store/store_patch_fixture.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

/// BF16 cells whose exponents are predictable.
Publication weights(std::uint64_t version, std::vector<SnapshotFile> files) {
  Publication made = publication(version, std::move(files));
  for (std::size_t i = 1; i < made.stream.size(); i += 2)
    made.stream[i] = static_cast<char>(0x3c + (i % 6 == 1 ? 1 : 0));
  made.digest();
  return made;
}

class StorePackedTest : public StorePatchTest {
 protected:
  void SetUp() override {
    StoreBackendFixture::SetUp();
    if (!IsSkipped()) open();
  }

  const Publication result = weights(1, {{"model.safetensors", kBytes}});
  const Publication packed = packed_payload(result);
  const PayloadId payload = packed_of(Version{1});
};

TEST_P(StorePackedTest, UnpacksWhatArrivedAndInstallsItBitForBit) {
  ASSERT_EQ(packed.manifest.id(), payload);
  EXPECT_LT(packed.stream.size(), 7 * kBytes / 10);
  ASSERT_THAT(install(packed), Succeeds());
  EXPECT_TRUE(holds(directory() / "current", result));
  ASSERT_EQ(store_->patches().size(), 1u);
  EXPECT_EQ(store_->patches()[0].manifest.id(), payload);
  EXPECT_TRUE(fs::exists(directory() / "patches" / "000000000001-packed"));
  EXPECT_EQ(content_digest_of((*read(payload, 1))->bytes()), packed.digests[1]) << "for children";
  const Publication next = next_of(result, 2);
  ASSERT_TRUE(install(patch_of(result, next)).has_value());
  EXPECT_TRUE(holds(directory() / "current", next)) << "patches follow";
}

TEST_P(StorePackedTest, UnpacksFilesWhosePagesAndLeavesAreNotTheSegments) {
  const Publication many = weights(3, {{"a", 5'000'001}, {"empty", 0}, {"b", 4'500'001}});
  ASSERT_THAT(install(packed_payload(many)), Succeeds());
  EXPECT_TRUE(holds(directory() / "current", many));
}

struct StoreOfThreads : OneStore {
  explicit StoreOfThreads(unsigned threads) : OneStore(threads) {}
  using OneStore::holds;
  using OneStore::install;
  using OneStore::open;
  void TestBody() override {}
};

TEST(StoreThreads, HoweverManyUnpackTheSame) {
  const Publication whole = weights(3, {{"a", 5'000'001}, {"b", 4'500'001}});
  const Publication packed = packed_payload(whole);
  for (const unsigned threads : {1u, 3u, 6u}) {
    StoreOfThreads store(threads);
    store.open();
    const Result<StoredVersion> stored = store.install(packed);
    ASSERT_TRUE(stored.has_value()) << stored.error().message();
    EXPECT_TRUE(StoreOfThreads::holds(stored->path, whole)) << threads;
  }
}

TEST_P(StorePackedTest, SegmentsAreUnpackedBeforeThePayloadIsComplete) {
  ASSERT_TRUE(arrive(packed, 0, packed.manifest.chunk_count() - 1).has_value());
  EXPECT_TRUE(eventually_half_made(result));
  EXPECT_EQ(store_->current(), kNoVersion);
}

TEST_P(StorePackedTest, RestartKeepsTheVersionAndNotThePayload) {
  ASSERT_TRUE(install(packed).has_value());
  for (const bool durable : {false, true}) {
    if (durable) await_durable(Version{1});
    open();
    EXPECT_EQ(store_->current(), Version{1});
    EXPECT_TRUE(holds(directory() / "current", result));
    EXPECT_TRUE(store_->patches().empty());
    EXPECT_FALSE(fs::exists(layout().patch(payload)));
    EXPECT_FALSE(fs::exists(layout().record(payload)));
  }
}

TEST_P(StorePackedTest, VersionAsItIsTakesThePlaceOfAPackedOneThatWasBegun) {
  ASSERT_TRUE(arrive(packed, 0, 2).has_value());
  ASSERT_TRUE(install(result).has_value());
  EXPECT_TRUE(holds(directory() / "current", result));
  settle();
  EXPECT_TRUE(fs::is_empty(directory() / "incoming"));
}

TEST_P(StorePackedTest, PayloadThatIsNoneIsThrownAway) {
  Publication damaged = packed;
  damaged.stream[damaged.stream.size() / 2] ^= 1;
  damaged.digest_chunks();
  Status put_there = begin(damaged).has_value() ? put(damaged) : Status();
  const Errc code = put_there.has_value() ? finish(damaged).error().code : put_there.error().code;
  EXPECT_EQ(code, Errc::kCorrupt);
  store_->discard(payload);
  settle();
  EXPECT_EQ(store_->current(), kNoVersion);
  ASSERT_TRUE(install(result).has_value());
}

TEST_P(StorePackedTest, PatchThatClaimsToNeedNoBaseIsRefused) {
  const Publication next = next_of(result, 2);
  ASSERT_TRUE(install(result).has_value());
  Publication forged = patch_of(result, next);
  forged.manifest.kind = PayloadKind::kPacked;
  forged.manifest.base_version = kNoVersion;
  ASSERT_TRUE(begin(forged).has_value());
  const Status stored = put(forged);
  EXPECT_FALSE(stored.has_value() && finish(forged).has_value());
  EXPECT_EQ(store_->current(), Version{1});
}

TEST_P(StorePackedTest, OnlyCopyIsReplacedFromBeside) {
  options_.single_copy = true;
  open();
  ASSERT_TRUE(install(packed).has_value());
  await_durable(Version{1});
  const Publication three = weights(3, {{"model.safetensors", kBytes}});
  ASSERT_TRUE(install(packed_payload(three)).has_value());
  EXPECT_TRUE(holds(directory() / "current", three));
  settle();
  EXPECT_FALSE(fs::exists(layout().complete(Version{1})));
}

INSTANTIATE_TEST_SUITE_P(, StorePackedTest, kBackends, backend_name);

}  // namespace
}  // namespace weightcast
