#include "transport/core/edge/holdings.h"

#include <gtest/gtest.h>

#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

constexpr Version kVersion{3};

/// A payload of `chunks` whose manifest gives the first part the digest of `list`, whatever that is: who can choose 16
/// bytes can reach any digest, so that a list is judged by its length first.
Holding holding_with(std::uint32_t chunks, Bytes list, bool open = false) {
  auto manifest = std::make_shared<Manifest>(*growing_manifest(patch_of(kVersion, Version{2}), chunks, open));
  if (!manifest->part_digests.empty()) manifest->part_digests[0] = checksum_of(list);
  return Holding(std::move(manifest));
}

TEST(Holding, RefusesDigestListsOfEveryWrongLengthThoughTheirDigestIsRight) {
  // One to three chunks are one short part; four are a whole one.
  for (std::uint32_t chunks = 1; chunks <= kGrowingPartChunks; ++chunks) {
    for (std::size_t size = 0; size <= (kGrowingPartChunks + 1) * Checksum::kBytes; ++size) {
      const std::vector<std::byte> list(size, std::byte{7});
      Holding holding = holding_with(chunks, list);
      const Status put = holding.put_part(0, list);
      EXPECT_EQ(put.has_value(), size == chunks * Checksum::kBytes) << chunks << " chunks, list of " << size;
      EXPECT_EQ(holding.part_known(0), put.has_value());
      EXPECT_TRUE(put.has_value() || put.error().code == Errc::kCorrupt);
    }
  }
}

TEST(Holding, PartThatIsNotThereYetWaitsOnlyIfItCanEverBeOne) {
  Holding holding = holding_with(4, {}, true);
  const std::vector<std::byte> list((kGrowingPartChunks + 1) * Checksum::kBytes);
  for (std::size_t size = 0; size <= list.size(); ++size) {
    const bool can_be = size > 0 && size % Checksum::kBytes == 0 && size <= kGrowingPartChunks * Checksum::kBytes;
    const Status put = holding.put_part(1, std::span(list).first(size));
    ASSERT_FALSE(put.has_value());
    EXPECT_EQ(put.error().code, can_be ? Errc::kNotFound : Errc::kCorrupt) << size;
  }
  // 64 MiB in chunks of 4 KiB are 4096 parts of four.
  EXPECT_EQ(holding.put_part(4095, std::span(list).first(16)).error().code, Errc::kNotFound);
  EXPECT_EQ(holding.put_part(4096, std::span(list).first(16)).error().code, Errc::kCorrupt);
  EXPECT_EQ(holding.put_part(~0u, std::span(list).first(16)).error().code, Errc::kCorrupt);
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
