#include "patch/codec/listed.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "patch/codec/byte_io.h"
#include "patch/codec/segment_codec.h"
#include "tests/patch/cells.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

using test::CellPair;
using test::Structure;

SegmentRange range_of(CellKind kind, std::size_t bytes) { return {3, 4096, 8192, std::uint32_t(bytes), kind}; }

/// The changed cells with both values, and every `extra`-th of the others.
struct List {
  std::vector<std::uint32_t> cells;
  std::vector<std::byte> before, after;
};

List list_of(CellKind kind, const CellPair& pair, std::size_t extra) {
  const auto width = std::ptrdiff_t(geometry_of(kind).bytes);
  List list;
  for (std::ptrdiff_t cell = 0; cell * width < std::ptrdiff_t(pair.after.size()); ++cell) {
    const auto before = pair.before.begin() + cell * width, after = pair.after.begin() + cell * width;
    if (std::equal(after, after + width, before) && std::size_t(cell) % extra != extra - 1) continue;
    list.cells.push_back(std::uint32_t(cell));
    list.before.insert(list.before.end(), before, before + width);
    list.after.insert(list.after.end(), after, after + width);
  }
  return list;
}

constexpr std::size_t kNoExtra = std::size_t{1} << 40;

std::vector<std::byte> encode(CellKind kind, std::size_t range_bytes, const List& list,
                              const Kernels& kernels = best_kernels()) {
  std::vector<std::byte> frame;
  const auto header =
      ListedEncoder(kernels).encode(range_of(kind, range_bytes), list.cells, list.before, list.after, frame);
  EXPECT_TRUE(header.has_value());
  EXPECT_TRUE(*header == read_segment(frame)->header);
  return frame;
}

CellPair any_cells(CellKind kind) {
  const Structure structure = *rc::gen::elementOf(test::kAllStructures);
  const std::size_t cells = *rc::gen::element<std::size_t>(1, 7, 32, 100, 4097, 30000, 300000);
  const double density = *rc::gen::element(0.00001, 0.0005, 0.003, 0.01, 0.2, 0.7);
  return test::make_cells(kind, cells, structure, density, *rc::gen::arbitrary<std::uint64_t>());
}

RC_GTEST_PROP(Listed, GivesBackTheChangesOfEveryKind, ()) {
  const CellKind kind = *rc::gen::elementOf(test::kAllKinds);
  const std::size_t width = geometry_of(kind).bytes;
  const CellPair pair = any_cells(kind);
  const List list = list_of(kind, pair, kNoExtra);
  const std::vector<std::byte> frame = encode(kind, pair.after.size(), list);
  RC_ASSERT(encode(kind, pair.after.size(), list_of(kind, pair, *rc::gen::element<std::size_t>(1, 3, 100))) == frame);
  const auto segment = read_segment(frame);
  RC_TAG(list.cells.empty() ? "none" : std::string(to_string(segment->header.mode)));
  RC_ASSERT(segment->header.result_digest == checksum_of(list.after));
  for (const Kernels* kernels : available_kernels()) {
    RC_ASSERT(encode(kind, pair.after.size(), list, *kernels) == frame);
    CellChanges changes;
    ListedDecoder decoder(*kernels);
    RC_ASSERT(decoder.decode(*segment, changes).has_value());
    RC_ASSERT(changes.cells == list.cells);
    std::vector<std::byte> old_values(list.before.size());
    std::vector<std::byte> cells = pair.before;
    RC_ASSERT(apply_steps(kind, cells.data(), changes, old_values.data()) == segment->header.result_digest);
    RC_ASSERT(cells == pair.after);
    RC_ASSERT(changes.values == list.after);
    RC_ASSERT(old_values == list.before);
    cells = pair.before;
    write_changes(changes, width, cells.data());
    RC_ASSERT(cells == pair.after);
    const auto exchange = [&] {
      return exchange_cells(changes.cells, width, changes.values.data(), cells.data(), old_values.data());
    };
    RC_ASSERT(list.cells.empty() || !exchange());
    RC_ASSERT(old_values == list.after);
    cells = pair.before;
    RC_ASSERT(exchange());
    RC_ASSERT(old_values == list.before);
    RC_ASSERT(cells == pair.after);
    cells = pair.before;
    RC_ASSERT(decoder.decode(*segment, changes).has_value());
    RC_ASSERT(apply_steps(kind, cells.data(), changes, old_values.data()) == segment->header.result_digest);
    RC_ASSERT(cells == pair.after);
    RC_ASSERT(changes.values == list.after);
    RC_ASSERT(old_values == list.before);
    read_cells(changes.cells, width, cells.data(), old_values.data());
    RC_ASSERT(old_values == list.after);
  }
}

RC_GTEST_PROP(Listed, TheDecoderOfWindowsGivesTheSameCellsAndList, ()) {
  const CellKind kind = *rc::gen::elementOf(test::kAllKinds);
  const std::size_t width = geometry_of(kind).bytes;
  const CellPair pair = any_cells(kind);
  const List list = list_of(kind, pair, kNoExtra);
  const std::vector<std::byte> frame = encode(kind, pair.after.size(), list);
  auto decoder = SegmentDecoder::start(*read_segment(frame));
  RC_ASSERT(decoder.has_value());
  CellChanges changes;
  decoder->list_changes(changes);
  std::vector<std::byte> result(pair.after.size());
  const bool in_place = *rc::gen::arbitrary<bool>();
  if (in_place) result = pair.before;
  for (std::size_t at = 0; at < result.size();) {
    const std::size_t size = std::min(width * *rc::gen::inRange<std::size_t>(1000, 100'000), result.size() - at);
    const MutableBytes after = MutableBytes(result).subspan(at, size);
    RC_ASSERT(decoder->next(in_place ? Bytes(after) : Bytes(pair.before).subspan(at, size), after).has_value());
    at += size;
  }
  RC_ASSERT(decoder->finish().has_value());
  RC_ASSERT(result == pair.after);
  RC_ASSERT(changes.cells == list.cells);
  RC_ASSERT(changes.values == list.after);
}

RC_GTEST_PROP(Listed, TheComparingEncoderMakesTheSegmentOfTheList, ()) {
  const CellKind kind = *rc::gen::elementOf(test::kAllKinds);
  const CellPair pair = any_cells(kind);
  const List list = list_of(kind, pair, kNoExtra);
  std::vector<std::byte> frame;
  const SegmentHeader header = SegmentEncoder(best_kernels(), SparseForm::kListed)
                                   .encode(range_of(kind, pair.after.size()), pair.before, pair.after, frame);
  RC_TAG(std::string(to_string(header.mode)));
  RC_ASSERT(header.changed_cells == list.cells.size());
  RC_ASSERT(header.mode != SegmentMode::kSparse);
  if (header.mode == SegmentMode::kListed || header.mode == SegmentMode::kUnchanged) {
    RC_ASSERT(frame == encode(kind, pair.after.size(), list));
  } else {
    RC_ASSERT(list.cells.size() * 20 > pair.after.size() / geometry_of(kind).bytes);
  }
  std::vector<std::byte> result(pair.after.size());
  RC_ASSERT(decode_segment(*read_segment(frame), pair.before, result).has_value());
  RC_ASSERT(result == pair.after);
  for (const Kernels* kernels : available_kernels()) {
    std::vector<std::byte> again;
    SegmentEncoder(*kernels, SparseForm::kListed)
        .encode(range_of(kind, pair.after.size()), pair.before, pair.after, again);
    RC_ASSERT(again == frame);
  }
}

// Every cell of a kind may become any other, and many in a range do.
TEST(Listed, HoldsWhereAllCellsChangeToAnything) {
  for (const CellKind kind : test::kAllKinds) {
    for (const std::size_t cells : {1, 2, 300, 70'000}) {
      const CellPair pair = test::make_cells(kind, cells, Structure::kAnything, 0, cells);
      const List list = list_of(kind, pair, kNoExtra);
      const std::vector<std::byte> frame = encode(kind, pair.after.size(), list);
      std::vector<std::byte> result(pair.after.size());
      ASSERT_TRUE(decode_segment(*read_segment(frame), pair.before, result).has_value()) << to_string(kind) << cells;
      ASSERT_EQ(result, pair.after);
    }
  }
}

// Its buffers are of the widest list of any range so far, in cells of any width.
TEST(Listed, OneEncoderComparesRangesOfEveryKindAndSizeInAnyOrder) {
  SegmentEncoder encoder(best_kernels(), SparseForm::kListed);
  std::mt19937_64 random(1);
  for (int i = 0; i < 60; ++i) {
    const CellKind kind = test::kAllKinds[random() % std::size(test::kAllKinds)];
    const std::size_t cells = 1 + random() % (i % 7 == 0 ? 400'000 : 40'000);
    const CellPair pair = test::make_cells(kind, cells, Structure::kIndependent, i % 3 == 0 ? 0.15 : 0.01, random());
    const SegmentRange range = range_of(kind, pair.after.size());
    std::vector<std::byte> frame, expected;
    encoder.encode(range, pair.before, pair.after, frame);
    SegmentEncoder(best_kernels(), SparseForm::kListed).encode(range, pair.before, pair.after, expected);
    EXPECT_TRUE(frame == expected) << i;
  }
}

TEST(Listed, TakesEveryStepOfOneAndTwoBytes) {
  for (const CellKind kind : {CellKind::kF8E4M3, CellKind::kRaw8, CellKind::kBf16}) {
    const std::size_t width = geometry_of(kind).bytes, values = std::size_t{1} << (8 * width);
    CellPair pair;
    for (std::size_t value = 1; value < values; ++value) {
      for (std::size_t b = 0; b < width; ++b) {
        pair.before.push_back(std::byte(0));
        pair.after.push_back(std::byte(value >> (8 * b)));
      }
    }
    const std::vector<std::byte> frame = encode(kind, pair.after.size(), list_of(kind, pair, kNoExtra));
    std::vector<std::byte> result(pair.after.size());
    ASSERT_TRUE(decode_segment(*read_segment(frame), pair.before, result).has_value());
    ASSERT_EQ(result, pair.after);
  }
}

// H(p) / p bits for the place of a cell, and 1.3 for steps of which 97 % go by one, up or down.
TEST(Listed, ComesCloseToTheEntropy) {
  constexpr std::size_t kCells = std::size_t{1} << 22;
  for (const auto& [density, entropy_bits, share] :
       {std::tuple{0.001, 12.66, 1.08}, std::tuple{0.01, 9.33, 1.03}, std::tuple{0.05, 6.98, 1.03}}) {
    std::mt19937_64 random(1);
    std::geometric_distribution<std::uint32_t> gap(density);
    List list;
    for (std::uint32_t cell = gap(random); cell < kCells; cell += 1 + gap(random)) {
      list.cells.push_back(cell);
      const std::uint16_t before = 0x3c80, step = random() % 100 < 97 ? 1 : std::uint16_t(2 + random() % 4);
      const auto after = std::uint16_t(random() % 2 == 0 ? before + step : before - step);
      for (unsigned b = 0; b < 2; ++b) {
        list.before.push_back(std::byte(before >> (8 * b)));
        list.after.push_back(std::byte(after >> (8 * b)));
      }
    }
    const std::vector<std::byte> frame = encode(CellKind::kBf16, 2 * kCells, list);
    const double bits = 8.0 * double(frame.size()) / double(list.cells.size());

    EXPECT_LT(bits, entropy_bits * share);
  }
}

TEST(Listed, RefusesAListThatDoesNotAscendWithinItsRange) {
  const List good{{2, 5, 63}, std::vector<std::byte>(6), std::vector<std::byte>(6, std::byte(1))};
  std::vector<std::byte> frame(3, std::byte(9));
  const auto encode_cells = [&](std::vector<std::uint32_t> cells) {
    return ListedEncoder().encode(range_of(CellKind::kBf16, 128), cells, good.before, good.after, frame);
  };
  for (const auto& cells : std::vector<std::vector<std::uint32_t>>{{2, 2, 63}, {5, 2, 63}, {2, 5, 64}, {2, 5, ~0u}}) {
    EXPECT_THAT(encode_cells(cells), FailsWith(Errc::kInvalidArgument));
    EXPECT_EQ(frame.size(), 3u);
  }
  EXPECT_TRUE(encode_cells(good.cells).has_value());
}

TEST(Listed, TellsAWrongBaseByItsChangedCellsAlone) {
  CellPair pair = test::make_cells(CellKind::kBf16, 10'000, Structure::kIndependent, 0.01, 7);
  const List list = list_of(CellKind::kBf16, pair, kNoExtra);
  const std::vector<std::byte> frame = encode(CellKind::kBf16, pair.after.size(), list);
  std::vector<std::byte> result(pair.after.size());
  std::vector<std::byte> wrong = pair.before;
  wrong[2 * list.cells[3]] ^= std::byte(1);
  EXPECT_EQ(decode_segment(*read_segment(frame), wrong, result).error().code, Errc::kWrongBase);
  wrong = pair.before;
  std::size_t unchanged = 0;
  while (list.cells[unchanged] == unchanged) ++unchanged;
  wrong[2 * unchanged] ^= std::byte(1);
  EXPECT_TRUE(decode_segment(*read_segment(frame), wrong, result).has_value());
}

/// A payload field by field, so that each can be wrong.
struct Payload {
  std::uint8_t wide = 0;
  std::uint64_t entries = 3;
  std::vector<int> low{0, 2, 4, 0};  // method, gaps 2, 4, 0: cells 2, 7, 8
  std::vector<int> high = {};
  std::vector<int> steps{0, 1, 255, 0};  // method, +1, a wide one, -1
  std::vector<int> wide_steps{0xff, 0};

  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> out;
    ByteWriter writer(out);
    writer.fixed(wide);
    writer.varint(entries);
    for (const auto* field : {&low, &high, &steps, &wide_steps}) {
      for (const int byte : *field) out.push_back(std::byte(byte));
    }
    return out;
  }
};

bool decodes(const Payload& payload, std::uint32_t changed = 3, std::uint32_t cells = 9,
             CellKind kind = CellKind::kBf16) {
  const std::vector<std::byte> bytes = payload.bytes();
  Segment segment;
  segment.header.range = range_of(kind, cells * geometry_of(kind).bytes);
  segment.header.mode = SegmentMode::kListed;
  segment.header.changed_cells = changed;
  segment.payload = bytes;
  CellChanges changes;
  const Status status = ListedDecoder().decode(segment, changes);
  if (!status) {
    EXPECT_EQ(status.error().code, Errc::kCorrupt);
  } else {
    EXPECT_EQ(changes.cells.size(), changed);
    EXPECT_EQ(changes.values.size(), changed * geometry_of(kind).bytes);
  }
  return status.has_value();
}

TEST(Listed, RefusesEveryFieldThatCannotBeRight) {
  EXPECT_TRUE(decodes({}));
  EXPECT_FALSE(decodes({.wide = 2}));
  EXPECT_FALSE(decodes({.entries = 2}));
  EXPECT_FALSE(decodes({.entries = 4}));
  EXPECT_FALSE(decodes({.entries = ~std::uint64_t{0}}));
  EXPECT_FALSE(decodes({}, 0));
  EXPECT_FALSE(decodes({}, 2));
  EXPECT_FALSE(decodes({}, 4));
  EXPECT_FALSE(decodes({}, 10));
  EXPECT_FALSE(decodes({}, 3, 8)) << "the last cell lies behind the range";
  EXPECT_FALSE(decodes({.low = {3, 2, 4, 0}})) << "an unknown method";
  EXPECT_FALSE(decodes({.low = {0, 2, 4, 1}}));
  EXPECT_FALSE(decodes({.low = {0, 2, 4}})) << "a field short";
  EXPECT_FALSE(decodes({.low = {2, 5, 1, 1, 1, 1, 1}})) << "an entropy code of nothing";
  EXPECT_FALSE(decodes({.steps = {0, 1, 255}}));
  EXPECT_FALSE(decodes({.steps = {3, 1, 255, 0}}));
  EXPECT_FALSE(decodes({.steps = {0, 1, 2, 0}})) << "a wide step is left over";
  EXPECT_FALSE(decodes({.wide_steps = {}}));
  EXPECT_FALSE(decodes({.wide_steps = {0xff}}));
  EXPECT_FALSE(decodes({.wide_steps = {0xff, 0, 0}}));
  EXPECT_FALSE(decodes({.wide_steps = {0xfe, 0}})) << "a byte would hold it";
  EXPECT_FALSE(decodes({.wide_steps = {0xff, 0xff}})) << "a step of zero";
  EXPECT_TRUE(decodes({.steps = {0, 1, 254, 0}, .wide_steps = {}}, 3, 9, CellKind::kF8E4M3));
  EXPECT_FALSE(decodes({.steps = {0, 1, 255, 0}, .wide_steps = {0xff}}, 3, 9, CellKind::kF8E4M3));
  // An entry goes on, and must be followed by one that ends.
  EXPECT_TRUE(decodes({.entries = 4, .low = {0, 2, 255, 4, 0}}, 3, 300));
  EXPECT_FALSE(decodes({.entries = 4, .low = {0, 2, 4, 0, 255}}, 3, 300));
  EXPECT_FALSE(decodes({.entries = 4, .low = {0, 2, 255, 4, 0}}, 3, 250));
  // Gaps of two bytes.
  EXPECT_TRUE(decodes({.wide = 1, .high = {1, 0}}));
  EXPECT_TRUE(decodes({.wide = 1, .high = {0, 0, 1, 0}}, 3, 265));
  EXPECT_FALSE(decodes({.wide = 1, .high = {0, 0, 1, 0}}, 3, 264));
  EXPECT_FALSE(decodes({.wide = 1, .entries = 4, .low = {0, 2, 4, 0, 255}, .high = {0, 0, 0, 0, 255}}, 3, 70'000));
}

TEST(Listed, RefusesAPayloadCutAtAnyByte) {
  const CellPair pair = test::make_cells(CellKind::kF32, 30'000, Structure::kIndependent, 0.02, 5);
  const std::vector<std::byte> frame =
      encode(CellKind::kF32, pair.after.size(), list_of(CellKind::kF32, pair, kNoExtra));
  Segment segment = *read_segment(frame);
  ASSERT_EQ(segment.header.mode, SegmentMode::kListed);
  CellChanges changes;
  const Bytes whole = segment.payload;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    segment.payload = whole.first(size);
    ASSERT_FALSE(ListedDecoder().decode(segment, changes).has_value()) << size;
  }
  segment.payload = whole;
  EXPECT_TRUE(ListedDecoder().decode(segment, changes).has_value());
}

TEST(Listed, APatchOfFormatOneHasNoLists) {
  const auto [before, after] = test::make_versions(20'000, 0.01, 3);
  const auto head = make_head(test::make_identity(), before.layout, after.layout, 65536);
  ASSERT_TRUE(head.has_value());
  for (const std::uint8_t version : {std::uint8_t{1}, kFormatVersion}) {
    PatchHead written = *head;
    written.format_version = version;
    std::vector<std::byte> patch;
    ASSERT_TRUE(encode_patch(written, MemorySource(before.stream), MemorySource(after.stream),
                             {.sparse_form = SparseForm::kListed},
                             [&](Bytes some) -> Status {
                               patch.insert(patch.end(), some.begin(), some.end());
                               return {};
                             })
                    .has_value());
    std::vector<std::byte> made(after.stream.size());
    const auto digest = test::apply_patch(patch, before.stream, made);
    ASSERT_EQ(digest.has_value(), version == kFormatVersion);
    if (version == kFormatVersion) {
      EXPECT_EQ(made, after.stream);
    } else {
      EXPECT_EQ(digest.error().code, Errc::kCorrupt);
    }
  }
}

}  // namespace
}  // namespace weightcast
