#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>

#include "patch/interop/hf_sparse.h"
#include "patch/interop/slime_delta.h"
#include "patch/snapshot/safetensors.h"
#include "patch/snapshot/snapshot.h"
#include "patch/snapshot/snapshot_stream.h"
#include "tests/patch/cells.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;
using test::Snapshot;

const std::string kGolden = WEIGHTCAST_INTEROP_GOLDEN;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  WC_CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

Snapshot read_snapshot(const std::string& path) {
  const auto source = SnapshotSource::open(real_files(), path);
  WC_CHECK(source.has_value());
  Snapshot snapshot;
  snapshot.layout = layout_of(*source);
  snapshot.stream.resize(source->size_bytes());
  WC_CHECK(source->read_at(0, snapshot.stream).has_value());
  return snapshot;
}

SlimeIndex index_of(SlimeEncoding encoding, SlimeChecksum checksum = SlimeChecksum::kXxh3_128) {
  return {Version{8}, Version{7}, encoding, checksum};
}

Result<SlimeSummary> export_slime(const Snapshot& before, const Snapshot& after, const SlimeIndex& index,
                                  const std::string& directory) {
  return export_slime_delta(real_files(), before.layout, MemorySource(before.stream), after.layout,
                            MemorySource(after.stream), index, directory);
}

/// What an import makes of the base, or its error.
class MemoryTarget final : public ByteTarget {
 public:
  explicit MemoryTarget(MutableBytes bytes) : bytes_(bytes) {}
  std::uint64_t size_bytes() const override { return bytes_.size(); }
  Status write(std::uint64_t offset, Bytes bytes) override {
    std::ranges::copy(bytes, bytes_.begin() + std::ptrdiff_t(offset));
    return {};
  }

 private:
  MutableBytes bytes_;
};

template <typename Import>
Result<std::vector<std::byte>> imported(const Snapshot& base, const std::string& path, Import import) {
  std::vector<std::byte> made(base.stream.size());
  MemoryTarget target(made);
  WC_TRY(import(real_files(), path, base.layout, MemorySource(base.stream), target));
  return made;
}

Result<std::vector<std::byte>> import_slime(const Snapshot& base, const std::string& path) {
  return imported(base, path, import_slime_delta);
}
Result<std::vector<std::byte>> import_hf(const Snapshot& base, const std::string& path) {
  return imported(base, path, import_hf_sparse);
}

/// Two versions whose bytes besides tensors are the same, which the formats do not carry.
std::pair<Snapshot, Snapshot> tensor_versions(std::size_t cells, double density, std::uint64_t seed) {
  std::pair<Snapshot, Snapshot> versions = test::make_versions(cells, density, seed);
  std::copy_n(versions.first.stream.begin(), versions.first.layout.tensors[0].offset_bytes,
              versions.second.stream.begin());
  return versions;
}

RC_GTEST_PROP(Interop, EveryFormatGivesTheNewVersionBack, ()) {
  const auto cells = *rc::gen::element<std::size_t>(0, 1, 63, 3000, 20000);
  const auto density = *rc::gen::element(0.0, 0.01, 0.5, 1.0);
  const auto [before, after] = tensor_versions(cells, density, *rc::gen::arbitrary<std::uint64_t>());
  const TempDir dir;
  const auto encoding = *rc::gen::element(SlimeEncoding::kXor, SlimeEncoding::kOverwrite);
  const auto checksum = *rc::gen::element(SlimeChecksum::kXxh3_128, SlimeChecksum::kAdler32);
  const auto delta = export_slime(before, after, index_of(encoding, checksum), dir.path());
  RC_ASSERT(delta.has_value());
  RC_ASSERT(delta->path == dir.path() + "/weight_v000008");
  const auto applied = import_slime(before, delta->path);
  RC_ASSERT(applied.has_value());
  RC_ASSERT(*applied == after.stream);
  const std::string file = dir.file("sparse.safetensors");
  const auto made = export_hf_sparse(real_files(), before.layout, MemorySource(before.stream), after.layout,
                                     MemorySource(after.stream), Version{8}, file);
  RC_ASSERT(made.has_value());
  RC_ASSERT(made->bytes == fs::file_size(file));
  const auto again = import_hf(before, file);
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == after.stream);
}

TEST(Interop, ReadsWhatAnotherHandWrote) {
  const Snapshot base = read_snapshot(kGolden + "/base.safetensors");
  const Snapshot expected = read_snapshot(kGolden + "/new.safetensors");
  for (const char* delta : {"/slime_xor/weight_v000008", "/slime_overwrite/weight_v000008"}) {
    EXPECT_THAT(import_slime(base, kGolden + delta), Gives(expected.stream)) << delta;
  }
  EXPECT_THAT(import_hf(base, kGolden + "/hf_sparse.safetensors"), Gives(expected.stream));
}

TEST(Interop, WritesTheSparseTensorsThatAnotherHandWrote) {
  const Snapshot base = read_snapshot(kGolden + "/base.safetensors");
  const Snapshot result = read_snapshot(kGolden + "/new.safetensors");
  const TempDir dir;
  ASSERT_THAT(export_hf_sparse(real_files(), base.layout, MemorySource(base.stream), result.layout,
                               MemorySource(result.stream), Version{8}, dir.file("out")),
              Succeeds());
  // The order of tensors is each writer's own: headers and bytes are compared by name.
  const std::string ours = contents(dir.file("out")), theirs = contents(kGolden + "/hf_sparse.safetensors");
  const auto parse = [](const std::string& file) {
    return *parse_safetensors_header(test::text_bytes(file), file.size(), "file");
  };
  const SafetensorsHeader a = parse(ours), b = parse(theirs);
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const TensorInfo& tensor : a.tensors) {
    const auto same =
        std::find_if(b.tensors.begin(), b.tensors.end(), [&](const auto& t) { return t.name == tensor.name; });
    ASSERT_NE(same, b.tensors.end()) << tensor.name;
    EXPECT_EQ(ours.substr(tensor.offset_bytes, tensor.size_bytes), theirs.substr(same->offset_bytes, same->size_bytes));
    EXPECT_EQ(tensor.dtype, same->dtype);
    EXPECT_EQ(tensor.shape, same->shape);
  }
}

TEST(Interop, WritesSlimesIndexAndChecksums) {
  const Snapshot base = read_snapshot(kGolden + "/base.safetensors");
  const Snapshot result = read_snapshot(kGolden + "/new.safetensors");
  const TempDir dir;
  const auto made = export_slime(base, result, index_of(SlimeEncoding::kXor, SlimeChecksum::kAdler32), dir.path());
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->changed_tensors, 2u);
  EXPECT_EQ(contents(made->path + "/model.safetensors.index.json"),
            R"({"metadata":{"base_version":"000007","checksum_format":"adler32","compression_format":"zstd",)"
            R"("delta_encoding":"xor","version":"000008"},"weight_map":{"a.weight":"model-00000-of-00001.safetensors",)"
            R"("c":"model-00000-of-00001.safetensors"}})");
  const std::string theirs = contents(kGolden + "/slime_xor/weight_v000008/model-00000-of-00002.safetensors");
  const auto expected = parse_safetensors_header(test::text_bytes(theirs), theirs.size(), "golden")->metadata;
  const std::string ours = contents(made->path + "/model-00000-of-00001.safetensors");
  const auto metadata = parse_safetensors_header(test::text_bytes(ours), ours.size(), "ours")->metadata;
  EXPECT_EQ(metadata.at("a.weight"), expected.at("a.weight"));
  // XXH3-128 of "abc" and Adler-32 of "Wikipedia", from their descriptions.
  EXPECT_EQ(slime_checksum(SlimeChecksum::kXxh3_128, test::text_bytes("abc")), "06b05ab6733a618578af5f94892f3950");
  EXPECT_EQ(slime_checksum(SlimeChecksum::kAdler32, test::text_bytes("Wikipedia")), "11e60398");
}

TEST(Interop, OverwritesBytesByCountPositionsAndValues) {
  const std::vector<std::byte> before(6),
      after = {std::byte{0}, std::byte{7}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{9}};
  const auto frame = encode_slime_tensor(SlimeEncoding::kOverwrite, before, after);
  std::vector<std::byte> cells = before;
  ASSERT_TRUE(apply_slime_tensor(SlimeEncoding::kOverwrite, *frame, cells).has_value());
  EXPECT_EQ(cells, after);
  // Idempotent, as slime wants it.
  ASSERT_TRUE(apply_slime_tensor(SlimeEncoding::kOverwrite, *frame, cells).has_value());
  EXPECT_EQ(cells, after);
  EXPECT_TRUE(encode_slime_tensor(SlimeEncoding::kXor, before, before)->empty());
}

TEST(Interop, RefusesToExportWhatTheFormatsCannotSay) {
  const auto [before, after] = tensor_versions(100, 0.1, 1);
  Snapshot more = after;
  more.add("fresh", "BF16", {1}, Bytes(after.stream).first(2));
  const TempDir dir;
  EXPECT_EQ(export_slime(before, more, index_of(SlimeEncoding::kXor), dir.path()).error().code, Errc::kUnsupported);
  EXPECT_EQ(export_slime(more, before, index_of(SlimeEncoding::kXor), dir.path()).error().code, Errc::kUnsupported);
  EXPECT_TRUE(fs::is_empty(dir.path()));
  ASSERT_TRUE(export_slime(before, after, index_of(SlimeEncoding::kXor), dir.path()).has_value());
  EXPECT_EQ(export_slime(before, after, index_of(SlimeEncoding::kXor), dir.path()).error().code, Errc::kAlreadyExists);
}

TEST(Interop, TellsAWrongBaseByTheChecksum) {
  const auto [before, after] = tensor_versions(1000, 0.1, 1);
  const TempDir dir;
  const auto made = export_slime(before, after, index_of(SlimeEncoding::kXor), dir.path());
  EXPECT_THAT(import_slime(after, made->path), FailsWith(Errc::kCorrupt, "the base is not version 7"));
  Snapshot other;
  other.add("another", "U8", {1}, Bytes(before.stream).first(1));
  EXPECT_EQ(import_slime(other, made->path).error().code, Errc::kInvalidArgument);
}

// Every length and every flipped byte of every file: an error, or the exact result where the byte does not matter
// (JSON's blanks, a number's leading zero), or another version's number.
TEST(Interop, ADamagedSlimeDeltaIsRefusedOrGivesTheExactResult) {
  const auto [before, after] = tensor_versions(60, 0.2, 3);
  for (const SlimeEncoding encoding : {SlimeEncoding::kXor, SlimeEncoding::kOverwrite}) {
    const TempDir dir;
    const auto made = export_slime(before, after, index_of(encoding), dir.path());
    ASSERT_TRUE(made.has_value());
    for (const auto& entry : fs::directory_iterator(made->path)) {
      const std::string whole = contents(entry.path());
      const auto check = [&](const std::string& damaged, std::size_t at) {
        std::ofstream(entry.path(), std::ios::binary) << damaged;
        const auto result = import_slime(before, made->path);
        ASSERT_TRUE(!result.has_value() || *result == after.stream) << entry.path() << " at " << at;
      };
      for (std::size_t at = 0; at < whole.size(); ++at) {
        check(whole.substr(0, at), at);
        for (const char flip : {'\x01', '\x80'}) {
          std::string damaged = whole;
          damaged[at] = char(damaged[at] ^ flip);
          check(damaged, at);
        }
      }
      std::ofstream(entry.path(), std::ios::binary) << whole;
    }
  }
}

TEST(Interop, RefusesHfSparseFilesThatAreCutShort) {
  const Snapshot base = read_snapshot(kGolden + "/base.safetensors");
  const std::string whole = contents(kGolden + "/hf_sparse.safetensors");
  const TempDir dir;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ASSERT_FALSE(import_hf(base, dir.write("cut", whole.substr(0, size))).has_value()) << size;
  }
}

TEST(Interop, RefusesMalformedHfSparseFiles) {
  const Snapshot base = read_snapshot(kGolden + "/base.safetensors");
  struct Case {
    SafetensorsMetadata metadata;
    std::string name;
    std::string dtype;
    std::vector<std::uint32_t> indices;
    std::size_t values;
    Errc code;
    std::string detail;
  };
  const SafetensorsMetadata good{{"sparse", "true"}, {"model_version", "8"}};
  const TempDir dir;
  const auto attempt = [&](const Case& c) {
    std::vector<TensorInfo> tensors{{c.name, "I32", {c.indices.size()}, 0, 4 * c.indices.size()},
                                    {"c.values", c.dtype, {c.values}, 0, c.values}};
    const std::vector<std::byte> values(c.values);
    const auto layout = lay_out_safetensors(tensors, c.metadata);
    const Bytes data[2] = {std::as_bytes(std::span(c.indices)), Bytes(values)};
    std::string file = layout->header;
    for (const std::size_t i : layout->order)
      file.append(reinterpret_cast<const char*>(data[i].data()), data[i].size());
    return import_hf(base, dir.write("file", file));
  };
  ASSERT_TRUE(attempt({good, "c.indices", "U8", {0, 4}, 2, {}, ""}).has_value());
  for (const Case& c : std::vector<Case>{
           {{{"model_version", "8"}}, "c.indices", "U8", {0}, 1, Errc::kCorrupt, "does not say that it is sparse"},
           {{{"sparse", "true"}, {"model_version", "x"}}, "c.indices", "U8", {0}, 1, Errc::kCorrupt, "model_version"},
           {good, "c.indices", "U8", {5}, 1, Errc::kCorrupt, "index 5 lies outside of its 5 elements"},
           {good, "c.indices", "U8", {0xffffffff}, 1, Errc::kCorrupt, "lies outside"},
           {good, "c.indices", "U8", {2, 1}, 2, Errc::kCorrupt, "do not grow"},
           {good, "c.indices", "U8", {2, 2}, 2, Errc::kCorrupt, "do not grow"},
           {good, "c.indices", "U8", {0, 1}, 1, Errc::kCorrupt, "not as many"},
           {good, "d.indices", "U8", {0}, 1, Errc::kCorrupt, "only one of"},
           {good, "c", "U8", {0}, 1, Errc::kCorrupt, "neither indices nor values"},
           {good, "c.indices", "I8", {0}, 1, Errc::kInvalidArgument, "another dtype"}}) {
    EXPECT_THAT(attempt(c), FailsWith(c.code, c.detail)) << c.detail;
  }
}

TEST(Interop, RefusesSlimeIndexesThatItCannotFollow) {
  const auto index = [](std::string_view encoding, std::string_view compression, std::string_view checksum,
                        std::string_view version = "\"000008\"") {
    return std::string(R"({"metadata":{"version":)") + std::string(version) +
           R"(,"base_version":"000007","delta_encoding":")" + std::string(encoding) + R"(","compression_format":")" +
           std::string(compression) + R"(","checksum_format":")" + std::string(checksum) + R"("},"weight_map":{}})";
  };
  ASSERT_TRUE(read_slime_index(index("xor", "zstd", "xxh3-128"), "i").has_value());
  EXPECT_EQ(read_slime_index(index("add", "zstd", "xxh3-128"), "i").error().code, Errc::kUnsupported);
  EXPECT_EQ(read_slime_index(index("xor", "lz4", "xxh3-128"), "i").error().code, Errc::kUnsupported);
  EXPECT_EQ(read_slime_index(index("xor", "zstd", "blake3"), "i").error().code, Errc::kUnsupported);
  EXPECT_EQ(read_slime_index(index("xor", "zstd", "adler32", "8"), "i").error().code, Errc::kCorrupt);
  EXPECT_EQ(read_slime_index(index("xor", "zstd", "adler32", "\"-8\""), "i").error().code, Errc::kCorrupt);
  for (const char* text : {"", "[]", "{}", R"({"metadata":{}})", R"({"metadata":[],"weight_map":{}})"}) {
    EXPECT_EQ(read_slime_index(text, "i").error().code, Errc::kCorrupt) << text;
  }
  const std::string with_more = index("xor", "zstd", "xxh3-128") + '\0' + "more";
  EXPECT_EQ(read_slime_index(with_more, "i").error().code, Errc::kCorrupt);
}

TEST(Interop, AZstdFrameCannotClaimMoreThanItsTensorNeeds) {
  const std::vector<std::byte> before(1 << 20), after(1 << 20, std::byte{1});
  const auto frame = encode_slime_tensor(SlimeEncoding::kXor, before, after);
  std::vector<std::byte> cells(100);
  EXPECT_EQ(apply_slime_tensor(SlimeEncoding::kXor, *frame, cells).error().code, Errc::kCorrupt);
  EXPECT_EQ(apply_slime_tensor(SlimeEncoding::kOverwrite, *frame, cells).error().code, Errc::kCorrupt);
}

TEST(Interop, ASparseChangeThatDoesNotFitItsTensorIsRefused) {
  const std::vector<std::byte> bytes(8);
  const auto code = [&](const char* dtype, std::size_t indices, std::size_t values, std::size_t cell_bytes) {
    std::vector<std::byte> cells(cell_bytes);
    const Bytes all(bytes);
    return apply_hf_sparse_tensor({"w", dtype, all.first(indices), all.first(values)}, cells).error().code;
  };
  EXPECT_EQ(code("F64", 4, 8, 6), Errc::kInvalidArgument) << "the base's tensor has other elements";
  EXPECT_EQ(code("BF16", 4, 4, 8), Errc::kInvalidArgument) << "one index, two values";
  EXPECT_EQ(code("BF16", 3, 0, 8), Errc::kInvalidArgument) << "less than an index";
  EXPECT_EQ(code("F4", 4, 4, 8), Errc::kInvalidArgument) << "elements that are not whole bytes";
}

}  // namespace
}  // namespace weightcast
