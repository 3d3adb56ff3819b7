#include "patch/snapshot/snapshot_digest.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "patch/snapshot/snapshot.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

FileTable table_of(std::vector<SnapshotFile> files) {
  auto table = FileTable::make(std::move(files));
  WC_CHECK(table.has_value());
  return *std::move(table);
}

// The root is what `xxhsum -H2` says of the bytes that the header lists.
TEST(SnapshotDigest, AgreesWithTheWorkedExample) {
  SnapshotDigest digest(table_of({{"a", 10}}));
  ASSERT_EQ(digest.leaf_count(), 1u);
  EXPECT_EQ(digest.leaf_size_bytes(0), 10u);
  digest.add(0, as_bytes("weightcast"));
  EXPECT_EQ(digest.leaves()[0], 0xd81b034f5ef1d454u);
  EXPECT_EQ(digest.root().hex(), "9f95c4d83d53a6905b9f164f024e098e");
}

TEST(SnapshotDigest, IsAnotherOneWhereAFileIsExecutable) {
  const SnapshotDigest plain(table_of({{"a", 10}})), executable(table_of({{"a", 10, true}}));
  EXPECT_NE(plain.root(), executable.root());
  EXPECT_EQ(plain.leaves(), executable.leaves());
}

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = std::byte(random());
  return bytes;
}

/// The definition, word by word.
LeafSums leaves_by_definition(Bytes stream) {
  const auto mix = [](std::uint64_t x) {
    std::uint64_t z = x + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  };
  LeafSums leaves((stream.size() + kDigestBlockBytes - 1) / kDigestBlockBytes);
  for (std::size_t i = 0; i < stream.size(); ++i) {
    const std::uint64_t word = i / 4;
    const std::uint64_t a = (mix(word % 1024) >> 32) | 1, b = mix((std::uint64_t{1} << 32) + word / 1024) | 1;
    leaves[i / kDigestBlockBytes] += (std::to_integer<std::uint64_t>(stream[i]) << 8 * (i % 4)) * a * b;
  }
  return leaves;
}

TEST(SnapshotDigest, IsTheSameInPiecesOfAnyLengthAndOrder) {
  const std::size_t size = kDigestBlockBytes + 70'001;
  const std::vector<std::byte> stream = random_bytes(size, 1);
  const FileTable table = table_of({{"a", 5}, {"b", size - 5}});
  const LeafSums expected = leaves_by_definition(stream);
  for (const std::size_t piece : {1u, 3u, 4u, 4096u, 70'000u, 5'000'000u}) {
    SnapshotDigest digest(table);
    for (std::size_t begin = (size - 1) / piece * piece;; begin -= piece) {
      digest.add(begin, Bytes(stream).subspan(begin, std::min(piece, size - begin)));
      if (begin == 0) break;
    }
    EXPECT_EQ(digest.leaves(), expected) << piece;
  }
  EXPECT_EQ(SnapshotDigest(table, expected).root(), SnapshotDigest(table, leaves_by_definition(stream)).root());
}

TEST(SnapshotDigest, FollowsFromTheCellsThatChange) {
  const std::size_t size = 2 * kDigestBlockBytes + 1000;
  const FileTable table = table_of({{"a", size}});
  std::mt19937_64 random(5);
  for (const unsigned cell_bytes : {1u, 2u, 4u, 8u}) {
    for (const std::size_t begin : {std::size_t{0}, std::size_t{3}, std::size_t{kDigestBlockBytes - 6}}) {
      std::vector<std::byte> stream = random_bytes(size, cell_bytes);
      SnapshotDigest digest(table);
      digest.add(0, stream);
      const std::size_t count = (size - begin) / cell_bytes;
      std::vector<std::uint32_t> cells;
      std::vector<std::byte> before, after;
      for (std::size_t cell = 0; cell < count; cell += cell < 4 ? 1 : 1 + random() % 2000) {
        cells.push_back(std::uint32_t(cell));
        for (unsigned i = 0; i < cell_bytes; ++i) {
          std::byte& byte = stream[begin + cell * cell_bytes + i];
          before.push_back(byte);
          byte = std::byte(random());
          after.push_back(byte);
        }
      }
      LeafChange change(begin, size);
      change.replace(begin, cell_bytes, cells, before, after);
      digest.add(change);
      EXPECT_EQ(digest.leaves(), leaves_by_definition(stream)) << cell_bytes << " at " << begin;
    }
  }
}

TEST(SnapshotDigest, BytesThatAreRemovedCountAsZeros) {
  const std::vector<std::byte> stream = random_bytes(10'000, 1);
  SnapshotDigest digest(table_of({{"a", stream.size()}}));
  LeafChange change(0, stream.size());
  change.add(0, stream);
  change.remove(17, Bytes(stream).subspan(17, 5000));
  change.add(17, Bytes(stream).subspan(17, 5000));
  digest.add(change);
  EXPECT_EQ(digest.leaves(), leaves_by_definition(stream));
}

TEST(SnapshotDigest, FindsAnyChangeOfAWord) {
  std::vector<std::byte> stream = random_bytes(4096 * 3, 1);
  const FileTable table = table_of({{"a", stream.size()}});
  const auto root = [&] {
    SnapshotDigest digest(table);
    digest.add(0, stream);
    return digest.root();
  };
  const Checksum whole = root();
  for (std::size_t at = 0; at < stream.size(); at += 37) {
    for (const int bit : {0, 7}) {
      stream[at] ^= std::byte(1 << bit);
      EXPECT_NE(root(), whole) << at;
      stream[at] ^= std::byte(1 << bit);
    }
  }
  // Words and blocks that change places.
  std::swap_ranges(stream.begin(), stream.begin() + 4, stream.begin() + 4);
  EXPECT_NE(root(), whole);
  std::swap_ranges(stream.begin(), stream.begin() + 4, stream.begin() + 4);
  std::swap_ranges(stream.begin(), stream.begin() + 4096, stream.begin() + 4096);
  EXPECT_NE(root(), whole);
}

TEST(SnapshotDigest, TellsNamesSizesAndOrderApart) {
  const auto root = [](std::vector<SnapshotFile> files) { return SnapshotDigest(table_of(std::move(files))).root(); };
  const Checksum one = root({{"a", 1}, {"b", 2}});
  EXPECT_EQ(one, root({{"a", 1}, {"b", 2}}));
  EXPECT_NE(one, root({{"b", 2}, {"a", 1}}));
  EXPECT_NE(one, root({{"a", 2}, {"b", 1}}));
  EXPECT_NE(one, root({{"a", 1}, {"c", 2}}));
  EXPECT_NE(one, root({{"a", 1}, {"b", 2}, {"c", 0}}));
}

TEST(SnapshotDigest, HasNoLeavesWithoutBytes) { EXPECT_EQ(SnapshotDigest(table_of({{"a", 0}})).leaf_count(), 0u); }

TEST(SnapshotDigest, OfASourceIsThatOfItsLeavesForAnyNumberOfThreads) {
  const TempDir dir;
  const std::uint64_t size = 2 * kDigestBlockBytes + 77;
  std::string data(size, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 2654435761u >> 13);
  const std::string file = safetensors_bytes(R"({"w":{"dtype":"U8","shape":[)" + std::to_string(size) +
                                                 R"(],"data_offsets":[0,)" + std::to_string(size) + "]}}",
                                             data);
  const auto source = SnapshotSource::open(real_files(), dir.write("model.safetensors", file));
  ASSERT_TRUE(source.has_value()) << source.error().message();
  SnapshotDigest expected(source->file_table());
  expected.add(0, as_bytes(file));
  for (const unsigned threads : {0u, 1u, 2u, 8u}) {
    EXPECT_THAT(snapshot_digest(*source, threads), Gives(expected.root()));
  }
  ASSERT_EQ(::truncate(dir.file("model.safetensors").c_str(), kDigestBlockBytes + 5), 0);
  EXPECT_EQ(snapshot_digest(*source, 2).error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace weightcast
