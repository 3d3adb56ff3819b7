#include "transport/core/edge/holdings.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/result_matchers.h"
#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

constexpr Version kVersion{3};

/// A payload of `chunks` whose manifest gives the first part the digest of `list`, whatever that is: a list is judged
/// by its length first.
Holding holding_with(std::uint32_t chunks, Bytes list, bool open = false) {
  auto manifest = std::make_shared<Manifest>(*growing_manifest(patch_of(kVersion, Version{2}), chunks, open));
  if (!manifest->part_digests.empty()) manifest->part_digests[0] = content_digest_of(list);
  return Holding(std::move(manifest));
}

/// A chunk that has the same XXH3-128 for every `free`. Its stripes of 64 bytes begin with a word whose low half
/// cancels the low half of the secret's word for that stripe, so the product of halves is 0 whatever the high half is.
/// What the high halves of two stripes add stays the same if one grows by as much as the other shrinks.
std::vector<std::byte> chunk_of_equal_checksum(std::uint32_t free) {
  std::vector<std::byte> chunk(kChunkBytesMin);
  const std::uint64_t first = 0x396cfeb8u | std::uint64_t{free} << 32;        // from byte 0 of XXH3's default secret
  const std::uint64_t second = 0x2c81017cu | std::uint64_t{0u - free} << 32;  // from byte 8
  std::memcpy(chunk.data(), &first, sizeof first);
  std::memcpy(chunk.data() + 64, &second, sizeof second);
  return chunk;
}

TEST(Holding, RefusesAChunkThatWasForgedToTheSameChecksum) {
  const std::vector<std::byte> published = chunk_of_equal_checksum(0), forged = chunk_of_equal_checksum(0x3f800000);
  ASSERT_NE(published, forged);
  ASSERT_EQ(checksum_of(published), checksum_of(forged)) << "else nothing is forged";
  const std::vector<ContentDigest> chunks{content_digest_of(published)};
  auto manifest = std::make_shared<Manifest>(*manifest_of(kVersion, 1));
  manifest->part_digests = part_digests_of(chunks);
  Holding holding(std::move(manifest));
  ASSERT_TRUE(holding.put_part(0, std::as_bytes(std::span(chunks))).has_value());
  EXPECT_THAT(holding.verify(ChunkIndex{0}, kChunkBytesMin, content_digest_of(forged)), FailsWith(Errc::kCorrupt));
  EXPECT_TRUE(holding.verify(ChunkIndex{0}, kChunkBytesMin, content_digest_of(published)).has_value());
}

TEST(Holding, RefusesDigestListsOfEveryWrongLengthThoughTheirDigestIsRight) {
  // One to three chunks are one short part; four are a whole one.
  for (std::uint32_t chunks = 1; chunks <= kGrowingPartChunks; ++chunks) {
    for (std::size_t size = 0; size <= (kGrowingPartChunks + 1) * ContentDigest::kBytes; ++size) {
      const std::vector<std::byte> list(size, std::byte{7});
      Holding holding = holding_with(chunks, list);
      const Status put = holding.put_part(0, list);
      EXPECT_EQ(put.has_value(), size == chunks * ContentDigest::kBytes) << chunks << " chunks, list of " << size;
      EXPECT_EQ(holding.part_known(0), put.has_value());
      EXPECT_TRUE(put.has_value() || put.error().code == Errc::kCorrupt);
    }
  }
}

TEST(Holding, PartThatIsNotThereYetWaitsOnlyIfItCanEverBeOne) {
  Holding holding = holding_with(4, {}, true);
  const std::vector<std::byte> list((kGrowingPartChunks + 1) * ContentDigest::kBytes);
  for (std::size_t size = 0; size <= list.size(); ++size) {
    const bool can_be =
        size > 0 && size % ContentDigest::kBytes == 0 && size <= kGrowingPartChunks * ContentDigest::kBytes;
    const Status put = holding.put_part(1, std::span(list).first(size));
    ASSERT_FALSE(put.has_value());
    EXPECT_EQ(put.error().code, can_be ? Errc::kNotFound : Errc::kCorrupt) << size;
  }
  // 64 MiB in chunks of 4 KiB are 4096 parts of four.
  EXPECT_EQ(holding.put_part(4095, std::span(list).first(ContentDigest::kBytes)).error().code, Errc::kNotFound);
  EXPECT_EQ(holding.put_part(4096, std::span(list).first(ContentDigest::kBytes)).error().code, Errc::kCorrupt);
  EXPECT_EQ(holding.put_part(~0u, std::span(list).first(ContentDigest::kBytes)).error().code, Errc::kCorrupt);
}

TEST(Holding, ChunkThatIsNotThereYetWaitsOnlyIfItCanEverBeOne) {
  Holding holding = holding_with(4, {}, true);
  const auto verdict = [&](std::uint32_t chunk, std::uint32_t size) {
    return holding.verify(ChunkIndex{chunk}, size, {}).error().code;
  };
  EXPECT_EQ(verdict(4, kChunkBytesMin), Errc::kNotFound);
  EXPECT_EQ(verdict(4, 1), Errc::kNotFound) << "it may be the last";
  EXPECT_EQ(verdict(4, 0), Errc::kInvalidArgument);
  EXPECT_EQ(verdict(4, kChunkBytesMin + 1), Errc::kInvalidArgument);
  EXPECT_EQ(verdict(16'383, kChunkBytesMin), Errc::kNotFound);
  EXPECT_EQ(verdict(16'384, kChunkBytesMin), Errc::kInvalidArgument) << "past the end of the snapshot";
  EXPECT_EQ(verdict(~0u, kChunkBytesMin), Errc::kInvalidArgument);
}

}  // namespace
}  // namespace weightcast
