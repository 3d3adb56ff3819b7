#include "patch/snapshot/snapshot_digest.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "patch/snapshot/snapshot.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"

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
  const Checksum leaf = checksum_of(as_bytes("weightcast"));
  EXPECT_EQ(leaf.hex(), "941234697ab003669e54a0eb88dfb1a3");
  digest.set_leaf(0, leaf);
  EXPECT_EQ(digest.root().hex(), "082e451e47937c0cd3d2b60ba4f95e46");
}

TEST(SnapshotDigest, IsTheSameInAnyOrderAndCountsALeafOnce) {
  const FileTable table = table_of({{"a", 3 * kDigestBlockBytes}, {"b", 1}});
  SnapshotDigest forward(table), backward(table);
  ASSERT_EQ(forward.leaf_count(), 4u);
  EXPECT_EQ(forward.leaf_size_bytes(2), kDigestBlockBytes);
  EXPECT_EQ(forward.leaf_size_bytes(3), 1u);
  const auto leaf = [](std::size_t i) { return checksum_of(as_bytes(std::to_string(i))); };
  for (std::size_t i = 0; i < 4; ++i) forward.set_leaf(i, leaf(i));
  for (std::size_t i = 4; i-- > 0;) {
    EXPECT_FALSE(backward.complete());
    backward.set_leaf(i, leaf(0));
    backward.set_leaf(i, leaf(i));
  }
  EXPECT_TRUE(backward.complete());
  EXPECT_EQ(forward.root(), backward.root());
  backward.set_leaf(1, leaf(2));
  EXPECT_NE(forward.root(), backward.root());
}

TEST(SnapshotDigest, TellsNamesSizesAndOrderApart) {
  const auto root = [](std::vector<SnapshotFile> files) {
    SnapshotDigest digest(table_of(std::move(files)));
    for (std::size_t i = 0; i < digest.leaf_count(); ++i) digest.set_leaf(i, Checksum{});
    return digest.root();
  };
  const Checksum one = root({{"a", 1}, {"b", 2}});
  EXPECT_EQ(one, root({{"a", 1}, {"b", 2}}));
  EXPECT_NE(one, root({{"b", 2}, {"a", 1}}));
  EXPECT_NE(one, root({{"a", 2}, {"b", 1}}));
  EXPECT_NE(one, root({{"a", 1}, {"c", 2}}));
  EXPECT_NE(one, root({{"a", 1}, {"b", 2}, {"c", 0}}));
}

TEST(SnapshotDigest, IsEmptyButCompleteWithoutBytes) {
  const SnapshotDigest digest(table_of({{"a", 0}}));
  EXPECT_EQ(digest.leaf_count(), 0u);
  EXPECT_TRUE(digest.complete());
}

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
  for (std::size_t i = 0; i < expected.leaf_count(); ++i) {
    expected.set_leaf(i,
                      checksum_of(as_bytes(file).subspan(expected.leaf_offset_bytes(i), expected.leaf_size_bytes(i))));
  }
  for (const unsigned threads : {0u, 1u, 2u, 8u}) {
    const auto root = snapshot_digest(*source, threads);
    ASSERT_TRUE(root.has_value());
    EXPECT_EQ(*root, expected.root());
  }
  ASSERT_EQ(::truncate(dir.file("model.safetensors").c_str(), kDigestBlockBytes + 5), 0);
  EXPECT_EQ(snapshot_digest(*source, 2).error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace weightcast
