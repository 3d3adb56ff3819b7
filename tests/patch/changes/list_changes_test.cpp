#include "patch/changes/list_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "patch/changes/change_file.h"
#include "patch/snapshot/safetensors.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct ListChangesTest : testing::Test {
  TempDir temp;
  // No tensor has the first 3 bytes. Two tensors have elements that are wider than the cells of their segment.
  std::vector<TensorInfo> tensors{{"raw", "U8", {10}, 3, 10},  {"half", "BF16", {4, 5}, 13, 40},
                                  {"none", "F32", {0}, 53, 0}, {"pair", "C64", {3}, 53, 24},
                                  {"word", "F32", {2}, 77, 8}, {"tiny", "F4", {4}, 85, 2},
                                  {"last", "F16", {3}, 87, 6}};
  std::vector<SegmentRange> plan{{0, 0, 0, 13, CellKind::kRaw8},   {1, 13, 13, 20, CellKind::kBf16},
                                 {2, 33, 33, 20, CellKind::kBf16}, {3, 53, 53, 24, CellKind::kRaw32},
                                 {4, 77, 77, 10, CellKind::kRaw8}, {5, 87, 87, 6, CellKind::kF16}};

  std::vector<CellChanges> compare(const std::string& before, const std::string& after) const {
    std::vector<CellChanges> segments(plan.size());
    for (const SegmentRange& range : plan) {
      const std::size_t width = geometry_of(range.kind).bytes;
      for (std::uint32_t cell = 0; cell < range.size_bytes / width; ++cell) {
        const std::size_t at = range.result_offset + cell * width;
        if (before.compare(at, width, after, at, width) == 0) continue;
        segments[range.index].cells.push_back(cell);
        const Bytes value = as_bytes(std::string_view(after).substr(at, width));
        segments[range.index].values.insert(segments[range.index].values.end(), value.begin(), value.end());
      }
    }
    return segments;
  }

  Result<ListedChanges> list(const std::vector<CellChanges>& segments, const std::string& after) {
    const auto read = [&](std::uint64_t at, MutableBytes out) -> Status {
      std::memcpy(out.data(), after.data() + at, out.size());
      return {};
    };
    const auto file = real_files().open(temp.file("changes"), {.write = true, .create = Create::kEmpty});
    return list_changes(plan, lists_of(segments), tensors, read, **file);
  }
  static std::vector<const CellChanges*> lists_of(const std::vector<CellChanges>& segments) {
    std::vector<const CellChanges*> lists;
    for (const CellChanges& segment : segments) lists.push_back(&segment);
    return lists;
  }

  /// Makes the listed changes in `before`.
  std::string apply(std::string before, std::uint64_t bytes, std::uint64_t elements) {
    auto file = real_files().open(temp.file("changes"), {});
    const auto opened = ChangeFile::open(FileRef(std::move(*file)), bytes, "the changes", tensors);
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    EXPECT_EQ(opened->count(), elements);
    CellChanges changes;
    EXPECT_TRUE(opened->read(0, std::uint32_t(before.size()), 1, false, changes).has_value());
    for (std::size_t i = 0; i < changes.cells.size(); ++i) before[changes.cells[i]] = char(changes.values[i]);
    return before;
  }
};

RC_GTEST_FIXTURE_PROP(ListChangesTest, LeadsFromTheFirstVersionToTheLast, ()) {
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  const auto steps = unsigned(1 + random() % 4), one_of = unsigned(1 + random() % 20);
  std::vector<std::string> versions{std::string(93, 'a')};
  for (unsigned step = 0; step < steps; ++step) {
    std::string next = versions.back();
    for (std::size_t at = 0; at < next.size(); ++at) {
      if (at < 85 || at >= 87) next[at] = random() % one_of == 0 ? char('a' + random() % 3) : next[at];
    }
    versions.push_back(next);
  }
  std::vector<std::vector<CellChanges>> compared;
  for (unsigned step = 0; step < steps; ++step) compared.push_back(compare(versions[step], versions[step + 1]));
  std::vector<CellChanges> folded;
  for (const SegmentRange& range : plan) {
    std::vector<const CellChanges*> each;
    for (const auto& step : compared) each.push_back(&step[range.index]);
    CellChanges of_several;
    folded.push_back(fold_changes(each, geometry_of(range.kind).bytes, of_several));
    RC_ASSERT(std::is_sorted(folded.back().cells.begin(), folded.back().cells.end()));
  }
  const auto listed = list(folded, versions.back());
  RC_ASSERT(listed.has_value());
  // The list leaves out the bytes that no tensor has.
  const std::string made = apply(versions.front(), listed->bytes, listed->elements);
  RC_ASSERT(made.substr(3) == versions.back().substr(3));
  RC_ASSERT(made.substr(0, 3) == versions.front().substr(0, 3));
}

TEST(FoldChanges, TheOnlyListIsNotCopied) {
  const CellChanges none, one{{3}, {std::byte{1}}}, other{{3, 4}, {std::byte{2}, std::byte{3}}};
  CellChanges folded;
  EXPECT_EQ(&fold_changes(std::array{&one}, 1, folded), &one);
  EXPECT_EQ(&fold_changes(std::array{&none, &one, &none}, 1, folded), &one);
  const CellChanges& both = fold_changes(std::array{&other, &none, &one}, 1, folded);
  EXPECT_EQ(&both, &folded);
  EXPECT_THAT(both.cells, ElementsAre(3, 4));
  EXPECT_THAT(both.values, ElementsAre(std::byte{1}, std::byte{3}));
  EXPECT_TRUE(fold_changes({}, 1, folded).cells.empty());
}

TEST_F(ListChangesTest, ArraysBeginAtMultiplesOfTheirElementsWidth) {
  const std::string before(93, 'a');
  std::string after = before;
  for (const std::size_t at : {3, 12, 14, 52, 60, 80, 92}) after[at] = 'b';
  const auto listed = list(compare(before, after), after);
  ASSERT_TRUE(listed.has_value()) << listed.error().message();
  EXPECT_EQ(listed->elements, 7u);
  const auto file = real_files().open(temp.file("changes"), {});
  std::vector<std::byte> bytes(listed->bytes);
  ASSERT_TRUE((*file)->read_at(0, bytes).has_value());
  const auto header = parse_safetensors_header(bytes, bytes.size(), "it");
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->tensors.size(), 2 * 5u);
  for (const TensorInfo& tensor : header->tensors) {
    EXPECT_EQ(tensor.offset_bytes % (dtype_bits(tensor.dtype) / 8), 0u) << tensor.name;
  }
}

TEST_F(ListChangesTest, NoChangesAreAFileWithoutTensors) {
  const std::string same(93, 'a');
  const auto listed = list(compare(same, same), same);
  ASSERT_TRUE(listed.has_value());
  EXPECT_EQ(listed->elements, 0u);
  EXPECT_EQ(apply(same, listed->bytes, 0), same);
}

TEST_F(ListChangesTest, ElementsBelowAByteAreToBeLoadedWhole) {
  const std::string before(93, 'a');
  std::string after = before;
  after[86] = 'b';
  const auto listed = list(compare(before, after), after);
  ASSERT_FALSE(listed.has_value());
  EXPECT_EQ(listed.error().code, Errc::kTooFar);
  EXPECT_THAT(listed.error().message(), HasSubstr("tensor 'tiny': elements of 'F4' are not whole bytes"));
}

TEST_F(ListChangesTest, AnErrorOfTheSnapshotIsTold) {
  const std::string before(93, 'a');
  std::string after = before;
  after[60] = 'b';
  const auto segments = compare(before, after);
  const auto file = real_files().open(temp.file("changes"), {.write = true, .create = Create::kEmpty});
  const auto listed = list_changes(
      plan, lists_of(segments), tensors,
      [](std::uint64_t, MutableBytes) -> Status { return fail(Errc::kCorrupt, Op::kRead, "cut short"); }, **file);
  ASSERT_FALSE(listed.has_value());
  EXPECT_EQ(listed.error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace weightcast
