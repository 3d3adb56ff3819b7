#include "patch/snapshot/layout_pair.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/random.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;

std::string random_text(Random& random, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random.next());
  return text;
}

std::string two_tensors(std::string_view a, std::string_view b) {
  return safetensors_bytes(
      fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[0,{}]}},"b":{{"dtype":"U8","shape":[{}],)"
                  R"("data_offsets":[{},{}]}}}})",
                  a.size(), a.size(), b.size(), a.size(), a.size() + b.size()),
      std::string(a) + std::string(b));
}

struct OpenTree {
  explicit OpenTree(const Files& files) : source(open(files)) {}

  SnapshotSource open(const Files& files) const {
    for (const auto& [path, bytes] : files) {
      fs::create_directories(fs::path(dir.file(path)).parent_path());
      dir.write(path, bytes);
    }
    return SnapshotSource::open_tree(real_files(), dir.path(), list_file_tree(real_files(), dir.path()).value())
        .value();
  }
  [[nodiscard]] std::string read(std::uint64_t offset, std::uint64_t size) const {
    std::string bytes(size, '\0');
    EXPECT_TRUE(source.read_at(offset, std::as_writable_bytes(std::span(bytes))).has_value());
    return bytes;
  }

  TempDir dir;
  SnapshotSource source;
};

struct Compared {
  std::uint64_t without_base_bytes = 0;
  std::uint64_t differing_bytes = 0;  // from their base
  std::size_t tensors = 0;
};

Compared compare(const Files& before, const Files& after) {
  const OpenTree base(before), result(after);
  const LayoutPair layouts = layouts_of(base.source, result.source).value();
  const PatchHead head = make_head({}, layouts.base, layouts.result).value();
  Compared compared{.tensors = head.tensors.size()};
  for (const PatchPiece& piece : head.pieces) {
    if (piece.base_offset == kNoBase) {
      compared.without_base_bytes += piece.size_bytes;
      continue;
    }
    const std::string then = base.read(piece.base_offset, piece.size_bytes);
    const std::string now = result.read(piece.result_offset, piece.size_bytes);
    for (std::size_t i = 0; i < now.size(); ++i) compared.differing_bytes += then[i] != now[i] ? 1 : 0;
  }
  return compared;
}

TEST(LayoutPair, WhatWasInsertedOrCutOutCostsNoOtherBytes) {
  Random random(1);
  const std::string text = random_text(random, 700'000);
  const std::string inserted = text.substr(0, 100'000) + "0123456789" + text.substr(100'000);
  for (const auto& [before, after, bytes] :
       std::vector<std::tuple<std::string, std::string, std::uint64_t>>{{text, "front" + text, 5},
                                                                        {text, text + "end", 3},
                                                                        {text, inserted, 10},
                                                                        {inserted, text, 0},
                                                                        {text, text.substr(1), 0},
                                                                        {text, text + text, text.size()}}) {
    const Compared compared = compare({{"a", "x"}, {"t", before}, {"z", "z"}}, {{"a", "x"}, {"t", after}, {"z", "z"}});
    EXPECT_LE(compared.without_base_bytes, bytes);
    EXPECT_EQ(compared.differing_bytes, 0u);
  }
}

TEST(LayoutPair, FilesKeepTheirOldBytesWhateverComesAndGoesBesideThem) {
  Random random(2);
  Files before;
  for (char name = 'a'; name < 'z'; ++name) before[fmt::format("{}/{}", name % 5, name)] = random_text(random, 3'000);
  Files after = before;
  after.erase("2/a");
  ASSERT_EQ(after.size(), before.size() - 1);
  after["0/first"] = random_text(random, 500);
  after["1/b0"] = "";
  after["3/g"][7] ^= 1;
  const Compared compared = compare(before, after);
  EXPECT_EQ(compared.without_base_bytes, 500u);
  EXPECT_EQ(compared.differing_bytes, 1u);
}

TEST(LayoutPair, SafetensorsArePairedByTensorUnlessTheyAreAsBefore) {
  Random random(3);
  const std::string a = random_text(random, 1'000), b = random_text(random, 1'000);
  std::string changed = b;
  changed[5] ^= 1;
  const Files before{{"m.safetensors", two_tensors(a, b)}, {"n.safetensors", two_tensors(a, b)}};
  const Files after{{"m.safetensors", two_tensors(a, b)}, {"n.safetensors", two_tensors(a, changed)}};
  const Compared compared = compare(before, after);
  EXPECT_EQ(compared.without_base_bytes, 0u);
  EXPECT_EQ(compared.differing_bytes, 1u);
  EXPECT_EQ(compared.tensors, 4u) << "one file, and the header and two tensors of the other";
  // A tensor that is longer now does not cost its neighbour.
  const Compared longer =
      compare(before, {{"m.safetensors", two_tensors(a + "x", b)}, {"n.safetensors", two_tensors(a, b)}});
  EXPECT_LT(longer.without_base_bytes, a.size() + 200);
  EXPECT_LT(longer.differing_bytes, 20u) << "of the header";
}

TEST(LayoutPair, AnyTwoTreesArePaired) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto draw = [&] {
      Files files;
      for (std::uint64_t i = random.between(1, 8); i > 0; --i) {
        const std::string name = fmt::format("{}/{}", random.below(2), random.below(6));
        const std::string bytes = random_text(random, random.below(200));
        files[name + (random.chance(0.3) ? ".safetensors" : "")] =
            random.chance(0.3) ? two_tensors(bytes.substr(0, bytes.size() / 2), bytes.substr(bytes.size() / 2)) : bytes;
      }
      return files;
    };
    const Files before = draw();
    Files after = draw();
    for (const auto& [name, bytes] : before) {
      if (random.chance(0.3)) after[name] = bytes;
      if (random.chance(0.3)) after[name] = bytes + "tail";
    }
    const Compared compared = compare(before, after);
    std::uint64_t bytes = 0;
    for (const auto& [_, text] : after) bytes += text.size();
    EXPECT_LE(compared.without_base_bytes + compared.differing_bytes, bytes);
    EXPECT_EQ(compare(before, before).without_base_bytes, 0u);
  }
}

}  // namespace
}  // namespace weightcast
