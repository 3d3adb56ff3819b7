#include "patch/codec/segment_codec.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <rapidcheck/gtest.h>

#include "tests/patch/cells.h"

namespace weightcast {
namespace {

using test::CellPair;
using test::Structure;

SegmentRange range_of(CellKind kind, std::size_t bytes, bool has_base = true) {
  return {3, 4096, has_base ? 8192u : kNoBase, std::uint32_t(bytes), kind};
}

std::vector<std::byte> encode(CellKind kind, const CellPair& pair, const Kernels& kernels = best_kernels()) {
  std::vector<std::byte> frame;
  SegmentEncoder(kernels).encode(range_of(kind, pair.after.size()), pair.before, pair.after, frame);
  return frame;
}

TEST(CellOps, StepsAreABijectionForEveryPairOfBF16) {
  using Ops = CellOps<CellKind::kBf16>;
  for (const std::uint16_t before : std::initializer_list<std::uint16_t>{0x0000, 0x8000, 0x0001, 0x8001, 0x3f80, 0xbf80,
                                                                         0x7f80, 0xff80, 0x7fc1, 0xffff}) {
    for (unsigned after = 0; after < 65536; ++after) {
      ASSERT_EQ(Ops::advance(before, Ops::step(before, std::uint16_t(after))), after);
    }
  }
  EXPECT_EQ(Ops::step(0x3f80, 0x3f81), 1);                  // 1 grows by one step
  EXPECT_EQ(Ops::step(0xbf80, 0xbf81), 1);                  // so does -1, away from zero
  EXPECT_EQ(Ops::step(0x0000, 0x8000), std::uint16_t(-1));  // +0 and -0 are neighbours
}

TEST(StepToken, JoinsWhatItSplits) {
  for (unsigned shift = 0; shift < 64; ++shift) {
    for (const std::uint64_t near : {-1, 0, 1}) {
      const std::uint64_t magnitude = (std::uint64_t{1} << shift) + near;
      if (magnitude == 0) continue;
      const StepToken split = split_step(magnitude, shift % 2 == 0);
      ASSERT_LT(split.token, kStepTokens);
      ASSERT_EQ(split.extra_bits, extra_bits_of(split.token));
      ASSERT_EQ(join_step(split.token, split.extra), magnitude);
    }
  }
}

RC_GTEST_PROP(SegmentCodec, GivesBackEveryBitOfEveryKind, ()) {
  const CellKind kind = *rc::gen::elementOf(test::kAllKinds);
  const Structure structure = *rc::gen::elementOf(test::kAllStructures);
  const std::size_t cells = *rc::gen::element<std::size_t>(1, 7, 32, 100, 4096, 4097, 30000);
  const double density = *rc::gen::element(0.0005, 0.01, 0.2, 0.7);
  const CellPair pair = test::make_cells(kind, cells, structure, density, *rc::gen::arbitrary<std::uint64_t>());
  const bool has_base = *rc::gen::weightedElement<bool>({{4, true}, {1, false}});
  const SegmentRange range = range_of(kind, pair.after.size(), has_base);
  const Bytes before = has_base ? Bytes(pair.before) : Bytes{};
  std::vector<std::byte> frame;
  SegmentEncoder encoder;
  const SegmentHeader header = encoder.encode(range, before, pair.after, frame);
  RC_TAG(std::string(to_string(header.mode)));
  RC_ASSERT(header.payload_bytes <= pair.after.size());
  for (const Kernels* kernels : available_kernels()) {
    std::vector<std::byte> again;
    SegmentEncoder(*kernels).encode(range, before, pair.after, again);
    RC_ASSERT(again == frame);
    const auto segment = read_segment(frame);
    RC_ASSERT(segment.has_value());
    RC_ASSERT(segment->header == header);
    std::vector<std::byte> result(pair.after.size());
    RC_ASSERT(decode_segment(*segment, before, result, *kernels).has_value());
    RC_ASSERT(result == pair.after);
    if (has_base) {
      result = pair.before;
      RC_ASSERT(decode_segment(*segment, result, result, *kernels).has_value());
      RC_ASSERT(result == pair.after);
    }
  }
}

// No chunk of the sample has a change, so that the model is fitted again to what the scan saw.
TEST(SegmentCodec, GivesBackCellsOfWhichTheSampleMisleads) {
  constexpr std::size_t kCells = 256 * kChunkCells;
  CellPair pair = test::make_cells(CellKind::kBf16, kCells, Structure::kNone, 0, 1);
  for (std::size_t cell = 0; cell < kCells; cell += 50) {
    if (cell / kChunkCells % 4 != 2) pair.after[2 * cell] ^= std::byte{1};
  }
  const std::vector<std::byte> frame = encode(CellKind::kBf16, pair);
  std::vector<std::byte> result(pair.before.size());
  ASSERT_TRUE(decode_segment(*read_segment(frame), pair.before, result, best_kernels()).has_value());
  EXPECT_EQ(result, pair.after);
}

/// Decodes in windows of random lengths, in place where there is a base.
Status decode_in_windows(const Segment& segment, Bytes before, std::vector<std::byte>& result, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  WC_ASSIGN(SegmentDecoder decoder, SegmentDecoder::start(segment));
  const std::size_t width = geometry_of(segment.header.range.kind).bytes;
  result.assign(before.begin(), before.end());
  result.resize(segment.header.range.size_bytes);
  for (std::size_t at = 0; at < result.size();) {
    const std::size_t cells = 1 + random() % (random() % 4 == 0 ? 5 : 6000);
    const MutableBytes window = MutableBytes(result).subspan(at, std::min(cells * width, result.size() - at));
    WC_TRY(decoder.next(before.empty() ? Bytes() : Bytes(window), window));
    at += window.size();
  }
  return decoder.finish();
}

RC_GTEST_PROP(SegmentDecoder, GivesTheSameCellsInWindowsOfAnyLengths, ()) {
  const CellKind kind = *rc::gen::elementOf(test::kAllKinds);
  const Structure structure = *rc::gen::elementOf(test::kAllStructures);
  const CellPair pair = test::make_cells(kind, *rc::gen::element<std::size_t>(1, 100, 30000), structure, 0.02,
                                         *rc::gen::arbitrary<std::uint64_t>());
  const bool has_base = *rc::gen::weightedElement<bool>({{3, true}, {1, false}});
  std::vector<std::byte> frame, result;
  SegmentEncoder().encode(range_of(kind, pair.after.size(), has_base), has_base ? Bytes(pair.before) : Bytes(),
                          pair.after, frame);
  const auto segment = read_segment(frame);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  RC_TAG(std::string(to_string(segment->header.mode)));
  RC_ASSERT(decode_in_windows(*segment, has_base ? Bytes(pair.before) : Bytes(), result, seed).has_value());
  RC_ASSERT(result == pair.after);
}

TEST(SegmentDecoder, TellsAWrongBaseAtTheEndWhereItLooksRightOnTheWay) {
  for (const Structure structure : {Structure::kIndependent, Structure::kRows, Structure::kNone}) {
    const CellPair pair = test::make_cells(CellKind::kBf16, 20000, structure, 0.02, 2);
    const std::vector<std::byte> frame = encode(CellKind::kBf16, pair);
    std::vector<std::byte> wrong = pair.before, result;
    wrong[100] ^= std::byte{1};
    EXPECT_EQ(decode_in_windows(*read_segment(frame), wrong, result, 1).error().code, Errc::kWrongBase);
  }
}

// What one decoder holds, whatever the length of the segment. Every plane of these is a zstd frame, which takes most.
TEST(SegmentDecoder, HoldsAFewMiBOfAnyLengthOfCells) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have an allocator of their own";
#endif
  const CellPair pair = test::make_cells(CellKind::kF32, 8u << 20, Structure::kRows, 0, 1);
  const std::vector<std::byte> frame = encode(CellKind::kF32, pair);
  const auto segment = read_segment(frame);
  ASSERT_EQ(segment->header.mode, SegmentMode::kXorPlanes);
  const auto in_use = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  std::vector<std::byte> window(64 * 1024);
  const std::size_t at_start = in_use();
  std::size_t most = 0;
  auto decoder = SegmentDecoder::start(*segment);
  ASSERT_TRUE(decoder.has_value());
  for (std::size_t at = 0; at < pair.before.size(); at += window.size()) {
    std::copy_n(pair.before.begin() + std::ptrdiff_t(at), window.size(), window.begin());
    ASSERT_TRUE(decoder->next(window, window).has_value());
    most = std::max(most, in_use() - at_start);
  }
  ASSERT_TRUE(decoder->finish().has_value());
  EXPECT_LT(most, 5u << 20);
}

// Nothing of one range may show in the next, whatever the widths of their cells and whatever their samples missed.
RC_GTEST_PROP(SegmentCodec, EncodesOneRangeAfterAnotherAsItWouldEachAlone, ()) {
  SegmentEncoder encoder;
  for (int i = 0; i < 4; ++i) {
    const CellKind kind = *rc::gen::elementOf(test::kAllKinds);
    // In 300,000 cells every second chunk is outside the sample.
    const std::size_t cells = *rc::gen::element<std::size_t>(3, 12, 5000, 300'000);
    const double density = *rc::gen::element(1e-5, 1e-4, 0.01, 1.0);
    const CellPair pair =
        test::make_cells(kind, cells, Structure::kIndependent, density, *rc::gen::arbitrary<std::uint64_t>());
    std::vector<std::byte> frame;
    encoder.encode(range_of(kind, pair.after.size()), pair.before, pair.after, frame);
    RC_ASSERT(frame == encode(kind, pair));
  }
}

TEST(SegmentCodec, MakesRoomForWideCellsThatTheSampleMissedAfterNarrowOnes) {
  SegmentEncoder encoder;
  std::vector<std::byte> frame;
  const CellPair narrow = test::make_cells(CellKind::kRaw8, 12, Structure::kDense, 1, 1);
  encoder.encode(range_of(CellKind::kRaw8, narrow.after.size()), narrow.before, narrow.after, frame);
  constexpr std::size_t kChunks = 256;
  CellPair wide = test::make_cells(CellKind::kF64, kChunks * kChunkCells, Structure::kNone, 0, 2);
  // The sample is every fourth chunk, from the third on.
  for (std::size_t chunk = 0; chunk < kChunks; chunk += 4) wide.after[chunk * kChunkCells * 8] ^= std::byte{1};
  frame.clear();
  encoder.encode(range_of(CellKind::kF64, wide.after.size()), wide.before, wide.after, frame);
  EXPECT_EQ(frame, encode(CellKind::kF64, wide));
  std::vector<std::byte> result(wide.after.size());
  ASSERT_TRUE(decode_segment(*read_segment(frame), wide.before, result, best_kernels()).has_value());
  EXPECT_EQ(result, wide.after);
}

TEST(SegmentCodec, ChoosesTheModeThatFits) {
  const auto mode_of = [](Structure structure, double density) {
    const CellPair pair = test::make_cells(CellKind::kBf16, 100000, structure, density, 1);
    return read_segment(encode(CellKind::kBf16, pair))->header.mode;
  };
  EXPECT_EQ(mode_of(Structure::kNone, 0), SegmentMode::kUnchanged);
  EXPECT_EQ(mode_of(Structure::kIndependent, 0.01), SegmentMode::kSparse);
  EXPECT_EQ(mode_of(Structure::kRows, 0), SegmentMode::kXorPlanes);
  EXPECT_EQ(mode_of(Structure::kAnything, 0), SegmentMode::kRaw);
}

TEST(SegmentCodec, ComesWithinThreePercentOfTheEntropy) {
  // Each class changes with its own probability, by one step either way.
  const std::size_t cells = 2'000'000;
  CellPair pair = test::make_cells(CellKind::kBf16, cells, Structure::kNone, 0, 5);
  using Ops = CellOps<CellKind::kBf16>;
  auto* after = reinterpret_cast<std::uint16_t*>(pair.after.data());
  std::mt19937_64 random(6);
  std::array<double, 256> seen{}, changed{};
  for (std::size_t i = 0; i < cells; ++i) {
    const unsigned key = Ops::key(after[i]);
    const double p = std::min(0.9, std::ldexp(0.005, 121 - int(key)));
    ++seen[key];
    if (std::uniform_real_distribution<>()(random) >= p) continue;
    ++changed[key];
    after[i] = Ops::advance(after[i], random() % 2 == 0 ? 1 : std::uint16_t(-1));
  }
  double bits = 0;
  for (unsigned key = 0; key < 256; ++key) {
    for (const double part : {changed[key], seen[key] - changed[key]}) {
      if (part > 0) bits -= part * std::log2(part / seen[key]);
    }
    bits += changed[key];
  }
  EXPECT_LT(double(encode(CellKind::kBf16, pair).size()) * 8, 1.03 * bits);
}

TEST(SegmentCodec, TellsAWrongBaseFromADamagedSegment) {
  for (const Structure structure : {Structure::kIndependent, Structure::kRows, Structure::kNone}) {
    const CellPair pair = test::make_cells(CellKind::kBf16, 20000, structure, 0.02, 2);
    const std::vector<std::byte> frame = encode(CellKind::kBf16, pair);
    const auto segment = read_segment(frame);
    std::vector<std::byte> result(pair.after.size());
    for (std::size_t at = 0; at < pair.before.size(); at += 997) {
      std::vector<std::byte> wrong = pair.before;
      wrong[at] ^= std::byte{0x41};
      EXPECT_EQ(decode_segment(*segment, wrong, result).error().code, Errc::kWrongBase);
    }
  }
}

TEST(Segment, RefusesEveryLengthAndEveryFlippedByte) {
  const CellPair pair = test::make_cells(CellKind::kBf16, 3000, Structure::kIndependent, 0.02, 2);
  const std::vector<std::byte> frame = encode(CellKind::kBf16, pair);
  for (std::size_t size = 0; size < frame.size(); ++size) {
    ASSERT_FALSE(read_segment(Bytes(frame).first(size)).has_value()) << size;
  }
  for (std::size_t at = 0; at < frame.size(); ++at) {
    std::vector<std::byte> damaged = frame;
    damaged[at] ^= std::byte{1};
    ASSERT_FALSE(read_segment(damaged).has_value()) << at;
  }
}

// As a peer would forge it: the frame's digest is right, the payload is not. What a decoder accepts all the same (the
// weight of a class without cells, say) must be the right cells.
TEST(SegmentCodec, GivesNoWrongCellFromAForgedPayload) {
  for (const Structure structure : {Structure::kIndependent, Structure::kRows}) {
    const CellPair pair = test::make_cells(CellKind::kBf16, 3000, structure, 0.05, 2);
    const std::vector<std::byte> frame = encode(CellKind::kBf16, pair);
    const auto segment = read_segment(frame);
    std::vector<std::byte> payload(segment->payload.begin(), segment->payload.end()), result(pair.after.size());
    for (std::size_t at = 0; at < payload.size(); ++at) {
      for (const std::byte flip : {std::byte{1}, std::byte{0x80}, std::byte{0xff}}) {
        payload[at] ^= flip;
        const bool accepted = decode_segment({segment->header, payload}, pair.before, result).has_value();
        ASSERT_TRUE(!accepted || result == pair.after) << at;
        ASSERT_FALSE(decode_segment({segment->header, Bytes(payload).first(at)}, pair.before, result).has_value())
            << at;
        payload[at] ^= flip;
      }
    }
  }
}

TEST(Segment, RefusesClaimsBeyondItsLimits) {
  SegmentHeader header;
  header.range = range_of(CellKind::kBf16, 0);
  header.range.size_bytes = kSegmentBytesMax + 2;
  std::vector<std::byte> frame;
  write_segment(header, {}, frame);
  EXPECT_EQ(read_segment(frame).error().code, Errc::kTooLarge);
  header.range.size_bytes = 64;
  header.range.result_offset = ~std::uint64_t{0} - 63;
  frame.clear();
  write_segment(header, {}, frame);
  EXPECT_EQ(read_segment(frame).error().code, Errc::kCorrupt);
}

TEST(SegmentCodec, CountsMoreChangesThanItWouldCodeAndTakesAnotherMode) {
  const std::size_t cells = SparseEncoder::kChangesMax + 4097;
  const CellPair pair = test::make_cells(CellKind::kF8E4M3, cells, Structure::kDense, 0, 1);
  const std::vector<std::byte> frame = encode(CellKind::kF8E4M3, pair);
  const auto segment = read_segment(frame);
  ASSERT_TRUE(segment.has_value());
  EXPECT_EQ(segment->header.changed_cells, cells);
  EXPECT_NE(segment->header.mode, SegmentMode::kSparse);
  std::vector<std::byte> result(cells);
  ASSERT_TRUE(decode_segment(*segment, pair.before, result).has_value());
  EXPECT_EQ(result, pair.after);
}

}  // namespace
}  // namespace weightcast
