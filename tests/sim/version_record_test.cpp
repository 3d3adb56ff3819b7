#include "transport/io/store/files/version_record.h"

#include <gtest/gtest.h>

#include "sim/host/sim_file_system.h"

namespace weightcast::sim {
namespace {

/// Of `chunks` chunks in parts of one.
VersionRecord make_record(PayloadId payload, std::uint32_t chunks) {
  Manifest manifest;
  manifest.version = payload.version;
  manifest.kind = payload.kind;
  manifest.base_version = payload.base;
  manifest.chunk_bytes = kChunkBytesMin;
  manifest.part_chunks = 1;
  manifest.payload_bytes = std::uint64_t{chunks} * kChunkBytesMin;
  manifest.files = {{"model.safetensors", manifest.payload_bytes}};
  manifest.part_digests = part_digests_of(std::vector<ContentDigest>(chunks), 1);
  return {manifest, ChunkDigests(manifest)};
}

TEST(VersionRecord, EntryThatTheDiskCutShortDoesNotHideThoseAfterIt) {
  const std::vector<ContentDigest> part(1);
  std::uint32_t refused = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimFileSystem files(seed);
    const VersionRecord record = make_record(Version{7}, 2);
    ASSERT_TRUE(write_record(files, "/r", record).has_value());
    files.set_faults({.short_io = 0.5});
    const bool first = append_digest_part(files, "/r", 0, part).has_value();
    refused += first ? 0 : 1;
    files.set_faults({});
    ASSERT_TRUE(append_digest_part(files, "/r", 1, part).has_value());
    const Result<VersionRecord> read = read_record(files, "/r");
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(read->digests.knows(ChunkIndex{0}), first);
    EXPECT_TRUE(read->digests.knows(ChunkIndex{1})) << seed;
  }
  EXPECT_GT(refused, 0u);
}

TEST(VersionRecord, MarkOfAVersionThatAPatchBroughtIsBelieved) {
  SimFileSystem files(1);
  const PayloadId step = patch_of(Version{7}, Version{6});
  ASSERT_TRUE(write_record(files, "/r", make_record(step, 2)).has_value());
  EXPECT_FALSE(read_record(files, "/r")->durable);
  ASSERT_TRUE(append_durable_mark(files, "/r").has_value());
  EXPECT_TRUE(read_record(files, "/r")->durable);
}

}  // namespace
}  // namespace weightcast::sim
