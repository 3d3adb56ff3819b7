#include <gtest/gtest.h>

#include "patch/codec/codec.h"
#include "patch/snapshot/safetensors.h"
#include "tests/patch/cells.h"

namespace weightcast {
namespace {

using test::make_patch;
using test::make_versions;
using test::Snapshot;

Status apply_to(const Snapshot& before, Bytes patch, std::vector<std::byte>& result, unsigned threads = 1) {
  const Result<Checksum> digest = test::apply_patch(patch, before.stream, result, threads);
  return digest.has_value() ? Status() : Status(digest.error());
}

void expect_leads_to(const Snapshot& before, const Snapshot& after, Bytes patch) {
  std::vector<std::byte> result(after.stream.size());
  const Status applied = apply_to(before, patch, result);
  ASSERT_TRUE(applied.has_value()) << applied.error().message();
  EXPECT_EQ(result, after.stream);
}

/// Cut short anywhere, and with any byte damaged.
void expect_refused_in_part_or_damaged(const Snapshot& before, const Snapshot& after, Bytes patch) {
  std::vector<std::byte> result(after.stream.size());
  for (std::size_t size = 0; size < patch.size(); ++size) {
    ASSERT_EQ(apply_to(before, patch.first(size), result).error().code, Errc::kCorrupt) << size;
  }
  for (std::size_t at = 0; at < patch.size(); ++at) {
    for (const std::byte flip : {std::byte{1}, std::byte{0x80}}) {
      std::vector<std::byte> damaged(patch.begin(), patch.end());
      damaged[at] ^= flip;
      ASSERT_FALSE(apply_to(before, damaged, result).has_value()) << at;
    }
  }
}

PatchIdentity packed_identity() {
  PatchIdentity identity = test::make_identity();
  identity.base_version = kNoVersion;
  return identity;
}

TEST(Patch, FromNothingPacksBF16WeightsToTwoThirdsAndGivesThemBack) {
  Snapshot snapshot;
  const auto cells = test::make_cells(CellKind::kBf16, 1'200'000, test::Structure::kNone, 0, 1);
  snapshot.add("w", "BF16", {1'200'000}, cells.before);
  const std::vector<std::byte> packed = make_patch(Snapshot(), snapshot, 1u << 20, {}, packed_identity());
  EXPECT_LT(double(packed.size()), 0.70 * double(snapshot.stream.size()));
  expect_leads_to(Snapshot(), snapshot, packed);
  EncodeOptions options;
  options.threads = 3;
  EXPECT_EQ(make_patch(Snapshot(), snapshot, 1u << 20, options, packed_identity()), packed);
}

TEST(Patch, FromNothingGivesBackEveryKindAndRefusesWhatIsCutShortOrDamaged) {
  const auto [snapshot, other] = make_versions(400, 0, 5);
  const std::vector<std::byte> packed = make_patch(Snapshot(), snapshot, 65536, {}, packed_identity());
  expect_leads_to(Snapshot(), snapshot, packed);
  expect_refused_in_part_or_damaged(Snapshot(), snapshot, packed);
  std::vector<std::byte> result(snapshot.stream.size());
  EXPECT_EQ(apply_to(other, packed, result).error().code, Errc::kWrongBase);
}

TEST(Patch, LeadsFromOneVersionToTheNext) {
  const auto [before, after] = make_versions(50000, 0.01, 1);
  const std::vector<std::byte> patch = make_patch(before, after);
  EXPECT_LT(patch.size(), after.stream.size() / 10);
  expect_leads_to(before, after, patch);
}

TEST(Patch, LeadsToTensorsThatAreNewGoneReshapedAndMoved) {
  const auto [before, same] = make_versions(20000, 0.01, 1);
  Snapshot after;
  after.add_raw(test::text_bytes("{another header}"));
  const auto take = [&](std::size_t i, std::vector<std::uint64_t> shape) {
    const TensorInfo& t = same.layout.tensors[i];
    after.add(t.name, t.dtype, std::move(shape), Bytes(same.stream).subspan(t.offset_bytes, t.size_bytes));
  };
  take(3, {10003});
  take(0, {100, 200});
  const auto fresh = test::make_cells(CellKind::kF16, 5000, test::Structure::kNone, 0, 3);
  after.add("fresh", "F16", {5000}, fresh.after);
  after.add("norm", "F32", {1000}, Bytes(fresh.after).first(4000));
  after.add("empty", "BF16", {0}, {});
  after.add_raw(test::text_bytes("{tokenizer}"));
  expect_leads_to(before, after, make_patch(before, after));

  const auto head = make_head({}, before.layout, after.layout);
  EXPECT_EQ(head->removed, std::vector<std::string>{"table"});
  EXPECT_TRUE(head->pieces[1].base_offset != kNoBase && head->pieces[2].base_offset != kNoBase);
  EXPECT_TRUE(head->pieces[3].base_offset == kNoBase && head->pieces[4].base_offset == kNoBase);
  expect_leads_to(after, before, make_patch(after, before));
}

TEST(Patch, IsTheSameForAnyThreadsAndKernels) {
  const auto [before, after] = make_versions(200000, 0.02, 4);
  const std::vector<std::byte> expected = make_patch(before, after);
  for (const unsigned threads : {2u, 5u}) EXPECT_EQ(make_patch(before, after, 65536, {.threads = threads}), expected);
  for (const Kernels* kernels : available_kernels()) {
    EXPECT_EQ(make_patch(before, after, 65536, {.threads = 1, .kernels = kernels}), expected) << kernels->name;
  }
  std::vector<std::byte> result(after.stream.size());
  ASSERT_TRUE(apply_to(before, expected, result, 4).has_value());
  EXPECT_EQ(result, after.stream);
}

TEST(Patch, ReadsTheSameInPiecesOfAnySize) {
  const auto [before, after] = make_versions(20000, 0.01, 1);
  const std::vector<std::byte> patch = make_patch(before, after, 8192);
  const test::PatchParts whole = test::split(patch);
  for (const std::size_t size : {1, 7, 71, 73, 4096}) {
    const test::PatchParts pieces = test::split(patch, size);
    ASSERT_EQ(pieces.segments.size(), whole.segments.size());
    EXPECT_EQ(pieces.end, whole.end);
    for (std::size_t i = 0; i < whole.segments.size(); ++i) {
      EXPECT_EQ(pieces.segments[i].header(), whole.segments[i].header());
    }
  }
}

TEST(Patch, RefusesATruncationAtEveryLengthAndEveryFlippedByte) {
  const auto [before, after] = make_versions(600, 0.05, 1);
  std::vector<std::byte> patch = make_patch(before, after, 4096);
  expect_refused_in_part_or_damaged(before, after, patch);
  std::vector<std::byte> result(after.stream.size());
  patch.push_back(std::byte{0});
  EXPECT_EQ(apply_to(before, patch, result).error().code, Errc::kCorrupt);
}

TEST(Patch, RefusesAnotherBaseAndAnotherModel) {
  const auto [before, after] = make_versions(20000, 0.01, 1);
  const std::vector<std::byte> patch = make_patch(before, after);
  std::vector<std::byte> result(after.stream.size());
  EXPECT_EQ(apply_to(after, patch, result).error().code, Errc::kWrongBase);
  Snapshot shorter = before;
  shorter.stream.pop_back();
  EXPECT_EQ(apply_to(shorter, patch, result).error().code, Errc::kWrongBase);

  PatchIdentity held = test::make_identity();
  EXPECT_TRUE(check_applies(test::make_identity(), held).has_value());
  held.base_version = Version(6);
  EXPECT_EQ(check_applies(test::make_identity(), held).error().code, Errc::kWrongBase);
  held = test::make_identity();
  held.model_id = "llama";
  EXPECT_EQ(check_applies(test::make_identity(), held).error().code, Errc::kInvalidArgument);
}

TEST(Patch, RefusesToClaimMoreThanItsLimits) {
  Snapshot small;
  small.add_raw(test::text_bytes("x"));
  SnapshotLayout vast;
  vast.size_bytes = std::uint64_t{1} << 60;
  vast.tensors.push_back({"w", "BF16", {std::uint64_t{1} << 59}, 0, std::uint64_t{1} << 60});
  EXPECT_EQ(make_head({}, small.layout, vast).error().code, Errc::kTooLarge);
  // A head that says so all the same, and one of 2^40 cells that stays within the limits: nothing as long is allocated.
  PatchHead head = *make_head({}, small.layout, small.layout);
  head.tensors = vast.tensors;
  head.result_bytes = vast.size_bytes;
  head.pieces = {{0, vast.size_bytes, kNoBase, CellKind::kBf16, 0}};
  std::vector<std::byte> frame;
  write_head(head, frame);
  EXPECT_EQ(read_head(frame).error().code, Errc::kTooLarge);
  head.tensors[0].size_bytes = head.result_bytes = head.pieces[0].size_bytes = std::uint64_t{1} << 41;
  frame.clear();
  write_head(head, frame);
  ASSERT_TRUE(read_head(frame).has_value());
  std::vector<std::byte> result(1);
  EXPECT_EQ(apply_to(small, frame, result).error().code, Errc::kCorrupt);
}

TEST(Patch, CarriesNamesOfTenKilobytesAndRefusesLongerOnesThanItsLimit) {
  Snapshot before, after;
  const std::string name(10'000, 'n'), too_long(kTensorNameBytesMax + 1, 'n');
  before.add(name, "BF16", {8}, test::text_bytes("0123456789abcdef"));
  after.add(name, "BF16", {8}, test::text_bytes("0123456789abcdXf"));
  const std::vector<std::byte> patch = make_patch(before, after);
  expect_leads_to(before, after, patch);
  PatchReader reader;
  ASSERT_TRUE(reader.handle_bytes(patch).has_value());
  EXPECT_EQ(reader.head()->tensors[0].name, name);
  after.layout.tensors[0].name = too_long;
  EXPECT_EQ(make_head({}, before.layout, after.layout).error().code, Errc::kTooLarge);
  EXPECT_EQ(make_head({}, after.layout, before.layout).error().code, Errc::kTooLarge);
}

TEST(Patch, RefusesLayoutsThatOverlapOrLeaveTheirStream) {
  Snapshot good;
  good.add("a", "BF16", {8}, test::text_bytes("0123456789abcdef"));
  SnapshotLayout bad = good.layout;
  bad.tensors.push_back({"b", "BF16", {4}, 8, 8});
  EXPECT_EQ(make_head({}, good.layout, bad).error().code, Errc::kInvalidArgument);
  bad.tensors[1].offset_bytes = 16;
  EXPECT_EQ(make_head({}, good.layout, bad).error().code, Errc::kInvalidArgument);
}

TEST(Patch, HandsOverTheErrorOfItsSink) {
  const auto [before, after] = make_versions(200000, 0.01, 1);
  const auto head = make_head({}, before.layout, after.layout, 8192);
  std::size_t calls = 0;
  const auto made =
      encode_patch(*head, MemorySource(before.stream), MemorySource(after.stream), {.threads = 3},
                   [&](Bytes) { return ++calls < 5 ? Status() : Status(fail(Errc::kNoSpace, Op::kWrite, "full")); });
  EXPECT_EQ(made.error().code, Errc::kNoSpace);
}

}  // namespace
}  // namespace weightcast
