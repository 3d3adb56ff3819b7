#include "patch/apply/patch_applier.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/patch/cells.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

using test::make_patch;
using test::make_versions;
using test::MemoryStreams;
using test::PatchParts;
using test::Snapshot;
using test::split;

TEST(PatchApplier, AppliesInAnyOrderAndSaysWhatIsDoubledOrMissing) {
  const auto [before, after] = make_versions(40000, 0.01, 1);
  PatchParts parts = split(make_patch(before, after, 8192));
  std::shuffle(parts.segments.begin(), parts.segments.end(), std::mt19937_64(3));
  std::vector<std::byte> result(after.stream.size());
  MemoryStreams streams(before.stream, result);
  PatchApplier applier(plan_segments(parts.head), test::one_file(result.size()), streams);
  for (std::size_t i = 0; i < parts.segments.size(); ++i) {
    EXPECT_EQ(applier.finish(parts.end).error().code, Errc::kCorrupt);
    EXPECT_EQ(applier.missing(), parts.segments.size() - i);
    EXPECT_TRUE(applier.apply(parts.segments[i].view()).has_value());
    EXPECT_EQ(applier.apply(parts.segments[i].view()).error().code, Errc::kAlreadyExists);
  }
  EXPECT_THAT(applier.finish(parts.end), Gives(test::digest_of_file(after.stream)));
  EXPECT_EQ(result, after.stream);
  parts.end.results_digest.bytes[0] ^= std::byte{1};
  EXPECT_EQ(applier.finish(parts.end).error().code, Errc::kCorrupt);
}

TEST(PatchApplier, ReadsNothingBackOfSegmentsThatComeInOrder) {
  const auto [before, after] = make_versions(3'000'000, 0.01, 1);
  const PatchParts parts = split(make_patch(before, after, 100'000));
  std::vector<std::byte> result(after.stream.size());
  MemoryStreams streams(before.stream, result);
  PatchApplier applier(plan_segments(parts.head), test::one_file(result.size()), streams);
  for (const OwnedSegment& segment : parts.segments) ASSERT_TRUE(applier.apply(segment.view()).has_value());
  EXPECT_EQ(*applier.finish(parts.end), test::digest_of_file(after.stream));
}

// Leaves of 4 MiB that many segments share, begun anywhere.
TEST(PatchApplier, HashesWhatItWritesInAnyOrderAndByAnyThread) {
  const auto [before, after] = make_versions(3'000'000, 0.01, 1);
  const Checksum expected = test::digest_of_file(after.stream);
  PatchParts parts = split(make_patch(before, after, 100'000));
  for (unsigned seed = 0; seed < 4; ++seed) {
    std::shuffle(parts.segments.begin(), parts.segments.end(), std::mt19937_64(seed));
    std::vector<std::byte> result(after.stream.size());
    MemoryStreams streams(before.stream, result);
    PatchApplier applier(plan_segments(parts.head), test::one_file(result.size()), streams, {.window_bytes = 4096});
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i = next++; i < parts.segments.size(); i = next++) {
        EXPECT_TRUE(applier.apply(parts.segments[i].view()).has_value());
      }
    };
    {
      const std::jthread other(work);
      work();
    }
    EXPECT_THAT(applier.finish(parts.end), Gives(expected)) << seed;
    EXPECT_EQ(result, after.stream) << seed;
  }
}

// Whatever the window, and wherever a file begins in the stream.
TEST(PatchApplier, EndsWindowsAtMultiplesInTheFile) {
  class Watched final : public ApplyStreams {
   public:
    Watched(ApplyStreams& streams, const FileTable& table) : streams_(streams), table_(table) {}
    Status read_base(std::uint64_t offset, MutableBytes cells) override { return streams_.read_base(offset, cells); }
    Status write_result(std::uint64_t offset, Bytes after) override {
      const std::uint64_t begin = table_.pieces(offset, 1).front().offset_bytes;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(after.data()) % 4096, begin % 4096);
      // An eight-byte cell may reach over the end of a window that it begins in.
      EXPECT_LE(begin % 8192 + after.size(), 8192u + 7);
      return streams_.write_result(offset, after);
    }

   private:
    ApplyStreams& streams_;
    const FileTable& table_;
  };
  const auto [before, after] = make_versions(40000, 0.01, 1);
  const PatchParts parts = split(make_patch(before, after, 20'000));
  std::vector<std::byte> result(after.stream.size());
  const FileTable table = *FileTable::make({{"a.safetensors", 12'345}, {"b.safetensors", result.size() - 12'345}});
  MemoryStreams memory(before.stream, result);
  Watched streams(memory, table);
  PatchApplier applier(plan_segments(parts.head), table, streams, {.window_bytes = 8192});
  for (const OwnedSegment& segment : parts.segments) ASSERT_TRUE(applier.apply(segment.view()).has_value());
  EXPECT_TRUE(applier.finish(parts.end).has_value());
  EXPECT_EQ(result, after.stream);
}

/// The result stands where the base did.
class EditedStreams final : public ApplyStreams {
 public:
  EditedStreams(Bytes base, MutableBytes result) : base_(base), result_(result) {}
  Status read_base(std::uint64_t offset, MutableBytes cells) override {
    ++reads;
    std::ranges::copy(base_.subspan(offset, cells.size()), cells.begin());
    return {};
  }
  Status write_result(std::uint64_t offset, Bytes after) override {
    std::ranges::copy(after, result_.begin() + std::ptrdiff_t(offset));
    return {};
  }
  Result<std::optional<MutableBytes>> edit_result(const SegmentRange&, std::uint64_t offset, std::size_t size,
                                                  std::vector<std::byte>&) override {
    if (fails_at && offset >= *fails_at) return fail(Errc::kIo, Op::kWrite, "the disk has failed");
    return std::optional(result_.subspan(offset, size));
  }

  unsigned reads = 0;
  std::optional<std::uint64_t> fails_at;

 private:
  const Bytes base_;
  const MutableBytes result_;
};

TEST(PatchApplier, EditsInPlaceWhereTheBaseStandsAndMakesAnewWhatTurnsOutToBeOther) {
  // Ten megabytes: leaves, of 4 MiB, end within segments.
  const auto [before, after] = make_versions(3'000'000, 0.01, 1);
  const PatchParts parts = split(make_patch(before, after, 1'000'000));
  for (const char* what : {"base", "damaged", "failing"}) {
    std::vector<std::byte> result = before.stream;
    EditedStreams streams(before.stream, result);
    if (what == std::string("damaged")) {
      for (std::size_t at = 500; at < result.size(); at += 3'000'000) result[at] ^= std::byte{0x7f};
    }
    if (what == std::string("failing")) streams.fails_at = result.size() / 2;
    PatchApplier applier(plan_segments(parts.head), test::one_file(result.size()), streams);
    for (const OwnedSegment& segment : parts.segments) ASSERT_TRUE(applier.apply(segment.view()).has_value()) << what;
    EXPECT_THAT(applier.finish(parts.end), Gives(test::digest_of_file(after.stream))) << what;
    EXPECT_EQ(result, after.stream) << what;
    EXPECT_EQ(streams.reads > 0, what != std::string("base")) << what;
  }
}

TEST(PatchApplier, TouchesChangedCellsAloneWhereTheyAreListedAndTheBaseIsKnown) {
  const auto [before, after] = make_versions(3'000'000, 0.01, 1);
  const FileTable table = test::one_file(before.stream.size());
  SnapshotDigest base(table), result_digest(table);
  base.add(0, before.stream);
  result_digest.add(0, after.stream);
  const PatchParts parts = split(make_patch(before, after, 1'000'000, {.sparse_form = SparseForm::kListed}));
  std::vector<std::byte> result = before.stream;
  // A byte of a cell that does not change is read by nobody.
  std::size_t spoilt = 5'000'000;
  while (before.stream[spoilt] != after.stream[spoilt] || before.stream[spoilt ^ 1] != after.stream[spoilt ^ 1]) {
    spoilt += 2;
  }
  result[spoilt] ^= std::byte{1};
  EditedStreams streams(before.stream, result);
  PatchApplier applier(plan_segments(parts.head), table, streams,
                       {.base_leaves = std::make_shared<const LeafSums>(base.leaves()), .list_bytes_max = kMiB * 64});
  std::size_t listed = 0;
  for (const OwnedSegment& segment : parts.segments) {
    listed += segment.header().mode == SegmentMode::kListed ? 1 : 0;
    ASSERT_TRUE(applier.apply(segment.view()).has_value());
  }
  EXPECT_GT(listed, 5u);
  EXPECT_THAT(applier.finish(parts.end), Gives(result_digest.root()));
  EXPECT_EQ(applier.leaves(), result_digest.leaves());
  result[spoilt] ^= std::byte{1};
  EXPECT_EQ(result, after.stream);
  EXPECT_EQ(streams.reads, 0u);
  for (const auto& changes : applier.take_changes()) EXPECT_TRUE(changes.has_value());
}

TEST(PatchApplier, MakesAnewWhatIsListedWhereTheBaseIsNotWhatItShouldBe) {
  const auto [before, after] = make_versions(300'000, 0.01, 1);
  const FileTable table = test::one_file(before.stream.size());
  SnapshotDigest base(table);
  base.add(0, before.stream);
  const PatchParts parts = split(make_patch(before, after, 100'000, {.sparse_form = SparseForm::kListed}));
  std::vector<std::byte> result = before.stream;
  for (std::size_t at = 0; at < result.size(); ++at) {
    if (before.stream[at] != after.stream[at]) result[at] ^= std::byte{0x40};
  }
  EditedStreams streams(before.stream, result);
  PatchApplier applier(plan_segments(parts.head), table, streams,
                       {.base_leaves = std::make_shared<const LeafSums>(base.leaves())});
  for (const OwnedSegment& segment : parts.segments) ASSERT_TRUE(applier.apply(segment.view()).has_value());
  EXPECT_THAT(applier.finish(parts.end), Gives(test::digest_of_file(after.stream)));
  EXPECT_EQ(result, after.stream);
  EXPECT_GT(streams.reads, 0u);
}

TEST(PatchApplier, ListsTheChangesAsFarAsTheyFit) {
  const auto [before, after] = make_versions(100'000, 0.01, 1);
  const PatchParts parts = split(make_patch(before, after, 20'000));
  for (const std::uint64_t bytes_max : {std::uint64_t{0}, std::uint64_t{3000}, std::uint64_t{1} << 30}) {
    std::vector<std::byte> result(after.stream.size());
    MemoryStreams streams(before.stream, result);
    const std::vector<SegmentRange> plan = plan_segments(parts.head);
    PatchApplier applier(plan, test::one_file(result.size()), streams,
                         {.window_bytes = 4096, .list_bytes_max = bytes_max});
    for (const OwnedSegment& segment : parts.segments) ASSERT_TRUE(applier.apply(segment.view()).has_value());
    ASSERT_TRUE(applier.finish(parts.end).has_value());
    const auto lists = applier.take_changes();
    ASSERT_EQ(lists.size(), bytes_max == 0 ? 0 : plan.size());
    std::uint64_t listed_bytes = 0;
    std::size_t listed = 0;
    for (std::size_t i = 0; i < lists.size(); ++i) {
      const SegmentMode mode = parts.segments[i].header().mode;
      if (bytes_max > 3000) {
        EXPECT_EQ(lists[i].has_value(), SegmentDecoder::tells_changes(mode));
      }
      if (!lists[i]) continue;
      ++listed;
      listed_bytes += lists[i]->cells.size() * 4 + lists[i]->values.size();
      std::vector<std::byte> cells(before.stream.begin() + std::ptrdiff_t(plan[i].base_offset),
                                   before.stream.begin() + std::ptrdiff_t(plan[i].base_offset + plan[i].size_bytes));
      change_cells(*lists[i], geometry_of(plan[i].kind).bytes, 0, cells);
      EXPECT_TRUE(std::ranges::equal(cells, Bytes(after.stream).subspan(plan[i].result_offset, plan[i].size_bytes)));
      EXPECT_EQ(lists[i]->cells.size(), parts.segments[i].header().changed_cells);
    }
    EXPECT_LE(listed_bytes, bytes_max);
    EXPECT_EQ(listed > 2, bytes_max > 0);
  }
}

TEST(PatchApplier, RefusesASegmentThatThePlanDoesNotHave) {
  const auto [before, after] = make_versions(40000, 0.01, 1);
  const PatchParts parts = split(make_patch(before, after, 8192));
  std::vector<std::byte> result(after.stream.size());
  MemoryStreams streams(before.stream, result);
  PatchApplier applier(plan_segments(parts.head), test::one_file(result.size()), streams);
  for (const auto& change : std::vector<std::function<void(SegmentRange&)>>{
           [](SegmentRange& range) { range.index = 1'000'000; },
           [](SegmentRange& range) { range.result_offset = ~std::uint64_t{0} - range.size_bytes; },
           [](SegmentRange& range) { range.base_offset = std::uint64_t{1} << 60; },
           [](SegmentRange& range) { range.size_bytes *= 2; }}) {
    Segment segment = parts.segments[0].view();
    change(segment.header.range);
    EXPECT_EQ(applier.apply(segment).error().code, Errc::kCorrupt);
  }
  EXPECT_TRUE(applier.apply(parts.segments[0].view()).has_value());
}

TEST(PatchApplier, IsNeverCompleteAfterASegmentThatFailed) {
  const auto [before, after] = make_versions(40000, 0.01, 1);
  const PatchParts parts = split(make_patch(before, after, 8192));
  std::vector<std::byte> base = before.stream, result(after.stream.size());
  for (std::byte& byte : base) byte ^= std::byte{1};
  MemoryStreams streams(base, result);
  PatchApplier applier(plan_segments(parts.head), test::one_file(result.size()), streams);
  for (const OwnedSegment& segment : parts.segments) {
    const Status applied = applier.apply(segment.view());
    if (!applied.has_value()) {
      EXPECT_EQ(applied.error().code, Errc::kWrongBase);
    }
  }
  EXPECT_EQ(applier.finish(parts.end).error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace weightcast
