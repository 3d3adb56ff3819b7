#include "patch/changes/list_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "patch/changes/change_file.h"
#include "patch/changes/change_names.h"
#include "patch/snapshot/safetensors.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

using testing::ElementsAre;

struct ListChangesTest : testing::Test {
  TempDir temp;
  const std::string old_stream = std::string(93, 'a');
  std::string new_stream = old_stream;
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

  static ReadStream read_of(const std::string& stream) {
    return [&stream](std::uint64_t at, MutableBytes out) -> Status {
      std::memcpy(out.data(), stream.data() + at, out.size());
      return {};
    };
  }
  std::unique_ptr<File> changes_file() const {
    return *real_files().open(temp.file("changes"), {.write = true, .create = Create::kEmpty});
  }
  /// With `before` also what the elements were.
  Result<ListedChanges> list(const std::vector<CellChanges>& segments, const std::string& after,
                             const std::string* before = nullptr) {
    const auto file = changes_file();
    const ChangesBase base{tensors, before == nullptr ? ReadStream() : read_of(*before)};
    return list_changes(plan, lists_of(segments), tensors, read_of(after), before == nullptr ? nullptr : &base, *file);
  }
  Result<ListedChanges> list_compared(const std::string& before, const std::string& after, CompareOptions options) {
    const auto file = changes_file();
    return compare_changes(tensors, read_of(after), {tensors, read_of(before)}, options, *file);
  }
  /// Writes the listed values over `stream`: the new ones, or the old ones.
  std::string write_listed(std::string stream, std::uint64_t bytes, std::string_view prefix) {
    std::vector<std::byte> all(bytes);
    EXPECT_TRUE(real_files().open(temp.file("changes"), {}).value()->read_at(0, all).has_value());
    const SafetensorsHeader header = *parse_safetensors_header(all, bytes, "it");
    for (const TensorInfo& tensor : tensors) {
      const auto find = [&](std::string_view of) {
        return std::ranges::find(header.tensors, std::string(of) + tensor.name, &TensorInfo::name);
      };
      const auto indices = find(kIndicesPrefix), values = find(prefix);
      if (indices == header.tensors.end()) continue;
      const std::size_t width = dtype_bits(tensor.dtype) / 8;
      for (std::size_t i = 0; i < indices->shape.front(); ++i) {
        std::uint32_t index = 0;
        std::memcpy(&index, &all[indices->offset_bytes + i * sizeof index], sizeof index);
        std::memcpy(&stream[tensor.offset_bytes + index * width], &all[values->offset_bytes + i * width], width);
      }
    }
    return stream;
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

  // What the elements were leads back again, and both files' bytes tell the same, in either direction.
  const std::string &first = versions.front(), &last = versions.back();
  const auto with_old = list(folded, last, &first);
  RC_ASSERT(with_old.has_value() && with_old->elements == listed->elements);
  RC_ASSERT(write_listed(first, with_old->bytes, kValuesPrefix).substr(3) == last.substr(3));
  RC_ASSERT(write_listed(last, with_old->bytes, kOldPrefix).substr(3) == first.substr(3));
  const auto compared_files = list_compared(first, last, {.old_values = true, .bytes_max = 10000});
  RC_ASSERT(compared_files.has_value() && compared_files->elements <= listed->elements);
  RC_ASSERT(write_listed(first, compared_files->bytes, kValuesPrefix).substr(3) == last.substr(3));
  RC_ASSERT(write_listed(last, compared_files->bytes, kOldPrefix).substr(3) == first.substr(3));
}

TEST_F(ListChangesTest, OldValuesOfElementsFarApartAreRead) {
  tensors = {{"far", "U8", {1 << 20}, 5, 1 << 20}};
  plan = {{0, 5, 5, 1 << 20, CellKind::kRaw8}};
  std::string before(5 + (1 << 20), 'a');
  for (std::size_t at = 5; at < before.size(); ++at) before[at] = char('a' + (at * 2654435761u >> 7) % 26);
  std::string after = before;
  // Runs that need several reads, gaps within one, and both ends.
  for (std::size_t at = 5; at < after.size(); at += at < 400000 ? 11 : 70001) after[at] = char(after[at] + 1);
  after.back() = '!';
  const auto listed = list(compare(before, after), after, &before);
  ASSERT_TRUE(listed.has_value()) << listed.error().message();
  EXPECT_GT(listed->elements, 36000u);
  EXPECT_TRUE(write_listed(after, listed->bytes, kOldPrefix) == before);
}

TEST_F(ListChangesTest, ABaseWithOtherTensorsIsToBeLoadedWhole) {
  new_stream[20] = 'b';
  auto others = tensors;
  others[1].shape = {5, 4};
  const ChangesBase base{others, read_of(old_stream)};
  const auto file = changes_file();
  const auto segments = compare(old_stream, new_stream);
  EXPECT_THAT(list_changes(plan, lists_of(segments), tensors, read_of(new_stream), &base, *file),
              FailsWith(Errc::kTooFar, "tensor 'half' was not there, or had another dtype or shape"));
  EXPECT_THAT(compare_changes(tensors, read_of(new_stream), base, {.bytes_max = 1000}, *file),
              FailsWith(Errc::kTooFar));
  others.pop_back();
  EXPECT_THAT(compare_changes(tensors, read_of(new_stream), {others, read_of(old_stream)}, {.bytes_max = 1000}, *file),
              FailsWith(Errc::kTooFar));
}

TEST_F(ListChangesTest, AComparisonEndsAtItsLimitAndWhenItIsTold) {
  for (const std::size_t at : {13, 15, 60}) new_stream[at] = 'b';
  // Two elements of 2 bytes and one of 8, with an index of 4 for each.
  EXPECT_TRUE(list_compared(old_stream, new_stream, {.bytes_max = 24}).has_value());
  EXPECT_THAT(list_compared(old_stream, new_stream, {.bytes_max = 23}), FailsWith(Errc::kTooFar));
  const auto told =
      list_compared(old_stream, new_stream,
                    {.bytes_max = 24, .go_on = [] { return Status(fail(Errc::kClosed, Op::kRead, "ended")); }});
  EXPECT_THAT(told, FailsWith(Errc::kClosed));
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
  for (const std::size_t at : {3, 12, 14, 52, 60, 80, 92}) new_stream[at] = 'b';
  const auto listed = list(compare(old_stream, new_stream), new_stream);
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
  const auto listed = list(compare(old_stream, old_stream), old_stream);
  ASSERT_TRUE(listed.has_value());
  EXPECT_EQ(listed->elements, 0u);
  EXPECT_EQ(apply(old_stream, listed->bytes, 0), old_stream);
}

TEST_F(ListChangesTest, ElementsBelowAByteAreToBeLoadedWhole) {
  new_stream[86] = 'b';
  EXPECT_THAT(list(compare(old_stream, new_stream), new_stream),
              FailsWith(Errc::kTooFar, "tensor 'tiny': elements of 'F4' are not whole bytes"));
}

TEST_F(ListChangesTest, AnErrorOfTheSnapshotIsTold) {
  new_stream[60] = 'b';
  const auto segments = compare(old_stream, new_stream);
  const auto file = real_files().open(temp.file("changes"), {.write = true, .create = Create::kEmpty});
  const auto listed = list_changes(
      plan, lists_of(segments), tensors,
      [](std::uint64_t, MutableBytes) -> Status { return fail(Errc::kCorrupt, Op::kRead, "cut short"); }, nullptr,
      **file);
  EXPECT_THAT(listed, FailsWith(Errc::kCorrupt));
}

}  // namespace
}  // namespace weightcast
