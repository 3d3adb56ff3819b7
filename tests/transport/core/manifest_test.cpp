#include "transport/core/manifest/manifest.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "proto/wire.pb.h"
#include "tests/result_matchers.h"
#include "tests/transport/core/payload_fixture.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

/// 2.5 chunks in two files.
Manifest small_manifest() {
  Manifest m;
  m.model_id = "qwen3-0.6b";
  m.version = Version{7};
  m.chunk_bytes = 4096;
  m.payload_bytes = 10'240;
  m.part_digests = {ContentDigest{}};
  m.files = {{"model-00001.safetensors", 10'000}, {"model-00002.safetensors", 240}};
  m.published_unix_ms = 1'700'000'000'000;
  return m;
}

TEST(Manifest, RoundTripsOverTheWire) {
  Manifest full = small_manifest();
  EXPECT_EQ(*manifest_from_wire(manifest_to_wire(full)), full);

  Manifest patch = small_manifest();
  patch.kind = PayloadKind::kPatch;
  patch.base_version = Version{6};
  patch.payload_bytes = 4097 * std::uint64_t{1024};  // 1025 chunks: two parts
  patch.part_digests = {content_digest_of({}), ContentDigest{}};
  EXPECT_EQ(*manifest_from_wire(manifest_to_wire(patch)), patch);

  Manifest tree = small_manifest();
  tree.file_tree = true;
  tree.files = {{".hidden/a", 10'000, true}, {"bin/tool.py", 240}};
  EXPECT_EQ(*manifest_from_wire(manifest_to_wire(tree)), tree);

  patch.kind = PayloadKind::kPacked;
  patch.base_version = kNoVersion;
  EXPECT_TRUE(patch.id().is_packed());
  EXPECT_EQ(*manifest_from_wire(manifest_to_wire(patch)), patch);
}

TEST(Manifest, KnowsPositionAndSizeOfEveryChunk) {
  const Manifest m = small_manifest();
  EXPECT_EQ(m.chunk_count(), 3u);
  EXPECT_EQ(m.chunk_offset(ChunkIndex{2}), 8192u);
  EXPECT_EQ(m.chunk_size(ChunkIndex{1}), 4096u);
  EXPECT_EQ(m.chunk_size(ChunkIndex{2}), 2048u);
  EXPECT_EQ(m.snapshot_bytes(), 10'240u);
}

struct BadField {
  const char* what;
  std::function<void(wire::Manifest&)> spoil;
  const char* named;  // in the error
};

TEST(Manifest, RefusesEachBadFieldAndNamesIt) {
  const BadField cases[] = {
      {"model id", [](auto& m) { m.set_model_id(std::string(256, 'x')); }, "model id"},
      {"no version", [](auto& m) { m.mutable_payload()->set_version(0); }, "version 0"},
      {"past the last version", [](auto& m) { m.mutable_payload()->set_version(kVersionMax.value + 1); },
       "version 9223372036854775808; versions start at 1 and end at 9223372036854775807"},
      {"kind missing", [](auto& m) { m.mutable_payload()->clear_kind(); }, "payload kind"},
      {"kind unknown", [](auto& m) { m.mutable_payload()->set_kind(static_cast<wire::PayloadKind>(99)); },
       "payload kind"},
      {"packed with a base",
       [](auto& m) {
         m.mutable_payload()->set_kind(wire::PAYLOAD_KIND_PACKED);
         m.mutable_payload()->set_base_version(6);
       },
       "base version 6"},
      {"no payload", [](auto& m) { m.clear_payload(); }, "version 0"},
      {"full with a base", [](auto& m) { m.mutable_payload()->set_base_version(6); }, "base version 6"},
      {"patch without one", [](auto& m) { m.mutable_payload()->set_kind(wire::PAYLOAD_KIND_PATCH); }, "base version 0"},
      {"base is itself",
       [](auto& m) {
         m.mutable_payload()->set_kind(wire::PAYLOAD_KIND_PATCH);
         m.mutable_payload()->set_base_version(7);
       },
       "base version 7 of version 7"},
      {"chunk size zero", [](auto& m) { m.set_chunk_bytes(0); }, "chunk size 0"},
      {"chunk below limit", [](auto& m) { m.set_chunk_bytes(2048); }, "chunk size 2048"},
      {"chunk above limit", [](auto& m) { m.set_chunk_bytes(8 << 20); }, "chunk size 8388608"},
      {"chunk no power of two", [](auto& m) { m.set_chunk_bytes(4097); }, "chunk size 4097"},
      {"payload empty", [](auto& m) { m.set_payload_bytes(0); }, "payload of 0 bytes"},
      {"payload too large", [](auto& m) { m.set_payload_bytes(~std::uint64_t{0}); }, "payload of 18446744073709551615"},
      {"too many chunks", [](auto& m) { m.set_payload_bytes((std::uint64_t{1} << 34) + 1); }, "too many chunks"},
      {"part digest missing", [](auto& m) { m.clear_part_digests(); }, "part digests"},
      {"part digest short", [](auto& m) { m.mutable_part_digests()->pop_back(); }, "part digests"},
      {"part digests too many", [](auto& m) { m.mutable_part_digests()->append(16, 'x'); }, "part digests"},
      {"no files", [](auto& m) { m.clear_files(); }, "number of files"},
      {"too many files",
       [](auto& m) {
         for (std::size_t i = 0; i < kFilesMax; ++i) m.add_files()->set_name(std::to_string(i));
       },
       "number of files"},
      {"file elsewhere", [](auto& m) { m.mutable_files(0)->set_name("x/../../y"); }, "leads out of its directory"},
      {"weights in a directory", [](auto& m) { m.mutable_files(0)->set_name("x/y"); }, "leads out of its directory"},
      {"weights hidden", [](auto& m) { m.mutable_files(0)->set_name(".x"); }, "begins with '.'"},
      {"weights executable", [](auto& m) { m.mutable_files(0)->set_executable(true); }, "is executable"},
      {"tree that leads out",
       [](auto& m) {
         m.set_file_tree(true);
         m.mutable_files(0)->set_name("x/../../y");
       },
       "leads out of its directory"},
      {"tree from the root",
       [](auto& m) {
         m.set_file_tree(true);
         m.mutable_files(0)->set_name("/x");
       },
       "part without a name"},
      {"tree with a file in a directory's place",
       [](auto& m) {
         m.set_file_tree(true);
         m.mutable_files(0)->set_name("x");
         m.mutable_files(1)->set_name("x/y");
       },
       "is a file and a directory"},
      {"tree too deep",
       [](auto& m) {
         m.set_file_tree(true);
         std::string path = "x";
         for (std::size_t i = 0; i < kFileDepthMax; ++i) path += "/x";
         m.mutable_files(0)->set_name(path);
       },
       "directories deep"},
      {"file names equal", [](auto& m) { m.mutable_files(0)->set_name(m.files(1).name()); }, "given twice"},
      {"file sizes overflow",
       [](auto& m) {
         m.mutable_files(0)->set_size_bytes(~std::uint64_t{0});
         m.mutable_files(1)->set_size_bytes(10'241);
       },
       "above the limit"},
      {"file sizes add up to too much",
       [](auto& m) {
         for (int i = 0; i < 2; ++i) m.mutable_files(i)->set_size_bytes(kPayloadBytesMax / 2 + 1);
       },
       "files too large"},
      {"files and payload differ", [](auto& m) { m.mutable_files(0)->set_size_bytes(9'999); }, "differ in size"},
      {"snapshot digest short", [](auto& m) { m.mutable_snapshot_digest()->pop_back(); }, "snapshot digest"},
      {"snapshot digest long", [](auto& m) { m.mutable_snapshot_digest()->push_back('x'); }, "snapshot digest"},
  };
  for (const BadField& bad : cases) {
    wire::Manifest message = manifest_to_wire(small_manifest());
    bad.spoil(message);
    EXPECT_THAT(manifest_from_wire(message), FailsWith(Errc::kCorrupt, bad.named)) << bad.what;
  }
}

TEST(Manifest, GroupsDigestsIntoPartsTheLastOneShort) {
  EXPECT_TRUE(part_digests_of({}).empty());
  std::vector<ContentDigest> chunks(kDigestsPerPart + 1);
  chunks.back().bytes[0] = std::byte{1};
  const std::vector<ContentDigest> parts = part_digests_of(chunks);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1], part_digests_of({chunks.back()})[0]);
  EXPECT_NE(parts[0], parts[1]);
}

constexpr PayloadId kPatch = patch_of(Version{7}, Version{6});

TEST(OpenManifest, RoundTripsOverTheWire) {
  for (const std::uint32_t chunks : {0u, 8u}) {
    Manifest open = *growing_manifest(kPatch, chunks);
    open.expected_bytes = 12345;
    EXPECT_EQ(*manifest_from_wire(manifest_to_wire(open)), open);
  }
  const Manifest whole = *growing_manifest(kPatch, 7, false);
  EXPECT_EQ(*manifest_from_wire(manifest_to_wire(whole)), whole);
}

TEST(OpenManifest, HasWholePartsAndIsNoLargerThanItsSnapshot) {
  const auto refused = [](const std::function<void(wire::Manifest&)>& spoil) {
    wire::Manifest message = manifest_to_wire(*growing_manifest(kPatch, 8));
    spoil(message);
    return !manifest_from_wire(message).has_value();
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& m) { m.set_payload_bytes(m.payload_bytes() - 1); }));
  EXPECT_TRUE(refused([](auto& m) { m.set_part_chunks(kDigestsPerPart + 1); }));
  EXPECT_TRUE(refused([](auto& m) { m.mutable_files(0)->set_size_bytes(8 * kChunkBytesMin - 1); }));
  EXPECT_TRUE(refused([](auto& m) { m.mutable_part_digests()->pop_back(); }));
  EXPECT_TRUE(refused([](auto& m) { m.set_open(false), m.set_payload_bytes(0), m.clear_part_digests(); }));
}

TEST(OpenManifest, GrowsByWhatIsNewUpToItsEnd) {
  const Manifest four = *growing_manifest(kPatch, 4), eight = *growing_manifest(kPatch, 8);
  const Manifest whole = *growing_manifest(kPatch, 11, false);
  EXPECT_EQ(*grown_by(four, growth_between(four, eight)), eight);
  EXPECT_EQ(*grown_by(four, growth_between(four, whole)), whole);
  EXPECT_EQ(*grown_by(eight, growth_between(four, whole)), whole) << "what is known already is told again";
  EXPECT_EQ(*grown_by(whole, growth_between(four, eight)), whole) << "and late";
}

TEST(OpenManifest, OfAFullPayloadGrowsUpToItsFilesAndLearnsItsDigestThere) {
  const Manifest none = *taken_over_manifest(Version{7}, 0, 10), eight = *taken_over_manifest(Version{7}, 8, 10);
  const Manifest whole = *taken_over_manifest(Version{7}, 10, 10);
  for (const Manifest& m : {none, eight, whole}) {
    EXPECT_EQ(*manifest_from_wire(manifest_to_wire(m)), m);
  }
  EXPECT_EQ(*grown_by(none, growth_between(none, eight)), eight);
  EXPECT_EQ(*grown_by(eight, growth_between(eight, whole)), whole);
  EXPECT_EQ(*grown_by(whole, growth_between(none, eight)), whole) << "late";
  EXPECT_EQ(*grown_by(whole, growth_between(eight, whole)), whole) << "twice";
}

TEST(OpenManifest, OfAFullPayloadRefusesAnEndThatIsNone) {
  const Manifest eight = *taken_over_manifest(Version{7}, 8, 10), whole = *taken_over_manifest(Version{7}, 10, 10);
  wire::Growth without_digest = growth_between(eight, whole);
  without_digest.clear_snapshot_digest();
  EXPECT_FALSE(grown_by(eight, without_digest).has_value());
  wire::Growth too_soon = growth_between(*taken_over_manifest(Version{7}, 4, 10), eight);
  too_soon.set_open(false);
  too_soon.set_snapshot_digest(std::string(bytes_of(whole.snapshot_digest)));
  EXPECT_FALSE(grown_by(*taken_over_manifest(Version{7}, 4, 10), too_soon).has_value()) << "its files are longer";
}

TEST(OpenManifest, OfAFullPayloadContinuesUnderAnyDigestButNotWithOtherFiles) {
  const Manifest eight = *taken_over_manifest(Version{7}, 8, 10), whole = *taken_over_manifest(Version{7}, 10, 10);
  EXPECT_TRUE(continues(eight, whole));
  EXPECT_FALSE(continues(whole, eight));
  Manifest renamed = whole;
  renamed.files[0].name = "other.safetensors";
  EXPECT_FALSE(continues(eight, renamed));
}

TEST(OpenManifest, RefusesGrowthThatIsNotItsOwn) {
  const Manifest four = *growing_manifest(kPatch, 4), eight = *growing_manifest(kPatch, 8);
  const auto refused = [&](const Manifest& at, const std::function<void(wire::Growth&)>& spoil) {
    wire::Growth growth = growth_between(four, eight);
    spoil(growth);
    return !grown_by(at, growth).has_value();
  };
  EXPECT_FALSE(refused(four, [](auto&) {}));
  EXPECT_TRUE(refused(four, [](auto& g) { g.set_parts_before(2); })) << "a gap";
  EXPECT_TRUE(refused(four, [](auto& g) { g.set_payload_bytes(g.payload_bytes() - 1); }));
  EXPECT_TRUE(refused(four, [](auto& g) { g.set_payload_bytes(std::uint64_t{1} << 63); }));
  EXPECT_TRUE(refused(four, [](auto& g) { g.mutable_part_digests()->pop_back(); }));
  EXPECT_TRUE(refused(eight, [](auto& g) { g.mutable_part_digests()->front() ^= 1; })) << "other bytes";
  EXPECT_TRUE(refused(*growing_manifest(kPatch, 7, false), [](auto&) {})) << "beyond the end";
}

}  // namespace
}  // namespace weightcast
