#include "transport/core/manifest/manifest_trust.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/text.h"
#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

Manifest patch_manifest() {
  Manifest m = *growing_manifest(patch_of(Version{7}, Version{6}), 8);
  m.model_id = "qwen";
  m.run = RunId{0xc0ffee};
  m.snapshot_tree = {kChunkBytesMin, 4, content_digest_of({})};
  m.published_unix_ms = 1'700'000'000'000;
  return m;
}

TEST(SignedStatement, ChangesWithEveryFieldThatDecidesWhatIsInstalled) {
  const std::vector<std::pair<const char*, std::function<void(Manifest&)>>> changes{
      {"run", [](Manifest& m) { m.run = RunId{0xc0ffef}; }},
      {"model", [](Manifest& m) { m.model_id = "qwem"; }},
      {"version", [](Manifest& m) { m.version = Version{8}; }},
      {"kind", [](Manifest& m) { m.kind = PayloadKind::kPacked; }},
      {"base", [](Manifest& m) { m.base_version = Version{5}; }},
      {"open", [](Manifest& m) { m.open = false; }},
      {"length", [](Manifest& m) { m.payload_bytes -= 1; }},
      {"chunk size", [](Manifest& m) { m.chunk_bytes *= 2; }},
      {"part size", [](Manifest& m) { m.part_chunks *= 2; }},
      {"a part", [](Manifest& m) { m.part_digests[1].bytes[31] ^= std::byte{1}; }},
      {"number of parts", [](Manifest& m) { m.part_digests.pop_back(); }},
      {"file name", [](Manifest& m) { m.files[0].name += "x"; }},
      {"file size", [](Manifest& m) { m.files[0].size_bytes += 1; }},
      {"executable", [](Manifest& m) { m.files[0].executable = true; }},
      {"file tree", [](Manifest& m) { m.file_tree = true; }},
      {"another file",
       [](Manifest& m) {
         m.files.push_back({"config.json", 0});
       }},
      {"snapshot checksum", [](Manifest& m) { m.snapshot_digest.bytes[0] ^= std::byte{1}; }},
      {"snapshot chunk size", [](Manifest& m) { m.snapshot_tree.chunk_bytes *= 2; }},
      {"snapshot part size", [](Manifest& m) { m.snapshot_tree.part_chunks *= 2; }},
      {"snapshot root", [](Manifest& m) { m.snapshot_tree.root.bytes[5] ^= std::byte{1}; }},
      {"time", [](Manifest& m) { m.published_unix_ms += 1; }},
  };
  std::set<std::string> statements{signed_statement(patch_manifest())};
  for (const auto& [what, change] : changes) {
    Manifest changed = patch_manifest();
    change(changed);
    EXPECT_TRUE(statements.insert(signed_statement(changed)).second) << what;
  }
  // Neither is known when the rest is signed.
  Manifest same = patch_manifest();
  same.expected_bytes += 1;
  same.signature.bytes = "s";
  EXPECT_FALSE(statements.insert(signed_statement(same)).second);
}

TEST(SignedStatement, DoesNotLetANameSlipIntoItsNeighbour) {
  Manifest one = patch_manifest(), two = patch_manifest();
  one.files = {{"ab.json", 1}, {"c.json", 2}};
  two.files = {{"a.json", 1}, {"bc.json", 2}};
  EXPECT_NE(signed_statement(one), signed_statement(two));
}

// The worked example of docs/PROTOCOL.md.
TEST(SignedStatement, HasTheDocumentedBytes) {
  Manifest m;
  m.model_id = "m";
  m.version = Version{7};
  m.chunk_bytes = 4096;
  m.payload_bytes = 1;
  m.part_chunks = 4;
  m.part_digests = part_digests_of({content_digest_of(std::as_bytes(std::span("x", 1)))}, 4);
  m.files = {{"model.safetensors", 1}};
  m.run = RunId{0x0102030405060708};
  m.published_unix_ms = 1'700'000'000'000;
  const std::string statement = signed_statement(m);
  EXPECT_EQ(hex_of(std::as_bytes(std::span(statement))),
            "77656967687463617374206d616e696665737420310a"  // "weightcast manifest 1\n"
            "0807060504030201"                              // run
            "0100000000000000"
            "6d"                                                                // model
            "0700000000000000"                                                  // version
            "0100000000000000"                                                  // full
            "0000000000000000"                                                  // no base
            "0000000000000000"                                                  // not open
            "0100000000000000"                                                  // payload bytes
            "0010000000000000"                                                  // chunk bytes
            "0400000000000000"                                                  // chunks of a part
            "431e815125923125af4197c42861a4ec01b4901e7917cd7db1f98c7debdf22c5"  // root
            "4fb19c1a0f662ddd69aeac18a821cda5823623014378ec854a84fe3f7a86ce35"
            "00000000000000000000000000000000"  // snapshot's checksum
            "0000000000000000"                  // no other tree
            "0000000000000000"
            "0000000000000000000000000000000000000000000000000000000000000000"
            "0068e5cf8b010000");  // time
}

}  // namespace
}  // namespace weightcast
