#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>

#include "patch/codec/head.h"
#include "patch/codec/segment_codec.h"
#include "tests/patch/cells.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(std::byte(value));
  return out;
}

// The worked example of FORMAT.md.
TEST(Golden, SparsePayload) {
  std::vector<std::uint16_t> before(64, 0x3c00);
  before[10] = 0xbd80;
  std::vector<std::uint16_t> after = before;
  after[10] = 0xbd81;
  after[40] = 0x3c02;
  const std::vector<std::byte> expected = bytes({
      0x78, 0x0f,                                               // key_low, scale_bits
      0x89, 0x06,                                               // hazard of class 0: 777 units
      0x01, 0x01,                                               // classes 1, 2
      0xf2, 0xe2, 0x02,                                         // class 3: 45426 units
      1,    1,    1,    1, 1,    1,    1,    1,    1, 1, 1, 1,  // classes 4 to 15
      0x00, 0x00,                                               // one step table
      0x03, 0x80, 0x10, 0, 0x80, 0x10,                          // its tokens: 0 and 2, half each
      0x08,                                                     // bytes of the positions
      0x49, 0,    0,    0, 0xc6, 0xb7, 0x26, 0x1c,              // positions: state, no words
      0x02, 0,    0,    0, 0,    0x10, 0,    0,                 // steps: state, no words
  });
  for (const Kernels* kernels : available_kernels()) {
    std::vector<std::byte> payload;
    const auto outcome = SparseEncoder(*kernels).encode(CellKind::kBf16, std::as_bytes(std::span(before)),
                                                        std::as_bytes(std::span(after)), payload);
    EXPECT_EQ(outcome.changed_cells, 2u);
    EXPECT_EQ(payload, expected) << kernels->name;
  }
  std::vector<std::uint16_t> result(64);
  ChecksumStream digest;
  auto decoder = SparseDecoder::start(CellKind::kBf16, expected, 2, best_kernels());
  ASSERT_TRUE(decoder.has_value());
  ASSERT_TRUE(
      decoder->next(std::as_bytes(std::span(before)), std::as_writable_bytes(std::span(result)), digest).has_value());
  ASSERT_TRUE(decoder->finish().has_value());
  EXPECT_EQ(result, after);
  EXPECT_EQ(digest.digest(), checksum_of(std::as_bytes(std::span(after))));
}

// The other worked example of FORMAT.md.
TEST(Golden, ListedPayload) {
  const std::vector<std::uint32_t> cells{10, 40, 50};
  const std::vector<std::uint16_t> before{0xbd80, 0x3c00, 0x3c00}, after{0xbd81, 0x3c02, 0x3d00};
  const std::vector<std::byte> expected = bytes({
      0x00,                    // gaps of one byte
      0x03,                    // as many entries
      0x00, 0x0a, 0x1d, 0x09,  // plain: 10, 29 and 9 cells lie between
      0x00, 0x01, 0x03, 0xff,  // plain: one step and two steps away from zero, and a wide one
      0xff, 0x01,              // 256 steps away from zero
  });
  const SegmentRange range{5, 0x108, 0x208, 128, CellKind::kBf16};
  for (const Kernels* kernels : available_kernels()) {
    std::vector<std::byte> frame;
    const auto header = ListedEncoder(*kernels).encode(range, cells, std::as_bytes(std::span(before)),
                                                       std::as_bytes(std::span(after)), frame);
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->mode, SegmentMode::kListed);
    EXPECT_EQ(header->changed_cells, 3u);
    EXPECT_EQ(header->result_digest, checksum_of(std::as_bytes(std::span(after))));
    const auto segment = read_segment(frame);
    ASSERT_TRUE(segment.has_value());
    EXPECT_TRUE(std::ranges::equal(segment->payload, expected)) << kernels->name;
    CellChanges changes;
    ASSERT_TRUE(ListedDecoder(*kernels).decode(*segment, changes).has_value());
    EXPECT_EQ(changes.cells, cells);
    EXPECT_EQ(changes.values, bytes({1, 0, 2, 0, 0, 1}));
  }
}

TEST(Golden, UnchangedSegment) {
  const std::vector<std::uint16_t> cells(64, 0x3c00);
  const SegmentRange range{5, 0x108, 0x208, 128, CellKind::kBf16};
  std::vector<std::byte> frame;
  SegmentEncoder().encode(range, std::as_bytes(std::span(cells)), std::as_bytes(std::span(cells)), frame);
  ASSERT_EQ(frame.size(), kSegmentHeaderBytes);
  const std::vector<std::byte> fields = bytes({
      'W',  'S',  'E', 'G',              // magic
      5,    0,    0,   0,                // index
      0x08, 0x01, 0,   0,   0, 0, 0, 0,  // offset in the result
      0x08, 0x02, 0,   0,   0, 0, 0, 0,  // offset in the base
      128,  0,    0,   0,                // bytes of the range
      4,    0,    0,   0,                // BF16, unchanged, reserved
      0,    0,    0,   0,                // bytes of the payload
      0,    0,    0,   0,                // changed cells
  });
  EXPECT_TRUE(std::equal(fields.begin(), fields.end(), frame.begin()));
  EXPECT_EQ(read_segment(frame)->header.result_digest, checksum_of(std::as_bytes(std::span(cells))));
}

// A packed snapshot is of such segments. Integers only, so that every machine makes the same cells: exponents as those
// of weights, mantissas of all kinds.
TEST(Golden, PackedSegment) {
  std::vector<std::uint16_t> cells(100'000);
  std::uint64_t state = 1;
  for (std::uint16_t& cell : cells) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto halvings = std::uint16_t(std::countl_zero(state | 1));
    cell = std::uint16_t((state >> 20 & 0x807f) | (0x7a - std::min<std::uint16_t>(halvings, 30)) << 7);
  }
  const Bytes bytes_of_cells = std::as_bytes(std::span(cells));
  const SegmentRange range{0, 0, SegmentRange().base_offset, std::uint32_t(bytes_of_cells.size()), CellKind::kBf16};
  std::vector<std::byte> frame;
  const SegmentHeader header = SegmentEncoder().encode(range, {}, bytes_of_cells, frame);
  EXPECT_EQ(header.mode, SegmentMode::kPlanes);
  EXPECT_EQ(header.payload_bytes, 125'366u);
  EXPECT_EQ(checksum_of(frame).hex(), "b82c4ef794190c3ddb54283e4a22dcdc");
  std::vector<std::uint16_t> unpacked(cells.size());
  ASSERT_TRUE(decode_segment(*read_segment(frame), {}, std::as_writable_bytes(std::span(unpacked))).has_value());
  EXPECT_EQ(unpacked, cells);
}

TEST(Golden, End) {
  std::vector<std::byte> frame;
  write_end({3, checksum_of({})}, frame);
  ASSERT_EQ(frame.size(), kEndBytes);
  const std::vector<std::byte> fields = bytes({
      'W', 'E', 'N', 'D',  // magic
      3, 0, 0, 0,          // segments
  });
  EXPECT_TRUE(std::equal(fields.begin(), fields.end(), frame.begin()));
  EXPECT_EQ(read_end(frame)->results_digest, checksum_of({}));
}

// Whole payloads as files, which every later build must read: FORMAT.md's promise. What stands behind their heads is
// made again to the same bytes; a head is one zstd frame, whose bytes are those of one zstd release.
struct GoldenSnapshots {
  test::Snapshot base, result;
};

GoldenSnapshots golden_snapshots() {
  GoldenSnapshots made;
  std::uint32_t state = 1;
  const auto random = [&state] { return state = state * 1664525 + 1013904223; };
  const auto add = [&](const char* name, const char* dtype, std::size_t cells, std::size_t width, auto before,
                       auto after) {
    std::vector<std::byte> old_bytes(cells * width), new_bytes(cells * width);
    for (std::size_t i = 0; i < cells; ++i) {
      const std::uint64_t old_cell = before(), new_cell = after(old_cell);
      for (std::size_t b = 0; b < width; ++b) {
        old_bytes[i * width + b] = std::byte(old_cell >> (8 * b));
        new_bytes[i * width + b] = std::byte(new_cell >> (8 * b));
      }
    }
    made.base.add(name, dtype, {cells}, old_bytes);
    made.result.add(name, dtype, {cells}, new_bytes);
  };
  made.base.add_raw(test::text_bytes("a header of the base"));
  made.result.add_raw(test::text_bytes("a header of result 2"));
  // A few exponents, any mantissa and sign; some in a hundred move to a neighbour.
  add(
      "w", "BF16", 20'000, 2, [&] { return 0x3b80u | (random() >> 16 & 0x81ffu); },
      [&](std::uint64_t cell) { return random() >> 24 < 5 ? cell ^ 1 : cell; });
  add(
      "norm", "F32", 600, 4, [&] { return 0x3f000000u | random() >> 9; },
      [&](std::uint64_t cell) { return random() >> 24 < 100 ? cell + 1 : cell; });
  add(
      "table", "I64", 100, 8, [&] { return std::uint64_t{random() >> 20}; }, [](std::uint64_t cell) { return cell; });
  return made;
}

PatchIdentity golden_identity(Version base_version, Bytes base, Bytes result) {
  return {"golden", base_version, Version{2}, base.empty() ? Checksum{} : test::digest_of_file(base),
          test::digest_of_file(result)};
}

void expect_golden(const std::string& name, const test::Snapshot& base, const test::Snapshot& result,
                   const PatchIdentity& identity, SparseForm form = SparseForm::kModelled) {
  std::ifstream in(std::string(WEIGHTCAST_CODEC_GOLDEN) + "/" + name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const Bytes golden = test::text_bytes(text);
  ASSERT_FALSE(golden.empty()) << name;
  const Result<std::size_t> head_bytes = peek_head(golden);
  ASSERT_TRUE(head_bytes.has_value()) << head_bytes.error().message();
  const Result<PatchHead> head = read_head(golden.first(*head_bytes));
  ASSERT_TRUE(head.has_value()) << head.error().message();
  PatchHead expected = *make_head(identity, base.layout, result.layout, 16'384);
  expected.format_version = head->format_version;
  // The codec only carries them, and they have been of another kind.
  expected.identity.base_digest = head->identity.base_digest;
  expected.identity.result_digest = head->identity.result_digest;
  EXPECT_TRUE(*head == expected);
  std::vector<std::byte> made(result.stream.size());
  EXPECT_THAT(test::apply_patch(golden, base.stream, made), Gives(test::digest_of_file(result.stream)));
  EXPECT_EQ(made, result.stream);

  const std::vector<std::byte> again = test::make_patch(base, result, 16'384, {.sparse_form = form}, identity);
  const Bytes fresh = Bytes(again).subspan(*peek_head(again));
  EXPECT_TRUE(std::ranges::equal(golden.subspan(*head_bytes), fresh)) << name << ": it is encoded differently now";
}

TEST(Golden, PackedPayload) {
  const GoldenSnapshots snapshots = golden_snapshots();
  expect_golden("packed.wcpatch", {}, snapshots.result, golden_identity(kNoVersion, {}, snapshots.result.stream));
}

TEST(Golden, Patch) {
  const GoldenSnapshots snapshots = golden_snapshots();
  expect_golden("patch.wcpatch", snapshots.base, snapshots.result,
                golden_identity(Version{1}, snapshots.base.stream, snapshots.result.stream));
}

TEST(Golden, PatchOfLists) {
  const GoldenSnapshots snapshots = golden_snapshots();
  expect_golden("listed.wcpatch", snapshots.base, snapshots.result,
                golden_identity(Version{1}, snapshots.base.stream, snapshots.result.stream), SparseForm::kListed);
}

}  // namespace
}  // namespace weightcast
