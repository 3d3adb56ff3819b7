#include "bench/codec/rivals/rivals.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cctype>
#include <random>
#include <vector>

#include "bench/codec/cells.h"
#include "bench/codec/codec_bench.h"
#include "bench/codec/rivals/streams.h"

namespace weightcast::bench {
namespace {

struct Snapshots {
  std::vector<std::byte> base;
  std::vector<std::byte> result;
  std::vector<TensorInfo> tensors;

  void add(const char* dtype, std::vector<std::uint64_t> shape) {
    std::uint64_t size_bytes = cell_bytes_of(dtype);
    for (const std::uint64_t d : shape) size_bytes *= d;
    tensors.push_back({"t" + std::to_string(tensors.size()), dtype, std::move(shape), base.size(), size_bytes});
    base.resize(base.size() + size_bytes);
    result.resize(base.size());
  }
};

/// Refusing a dtype is fine, unless it is BF16, which all know.
testing::AssertionResult round_trips(const Codec& codec, const Snapshots& snapshots) {
  const auto patch = codec.encode(snapshots.base, snapshots.result, snapshots.tensors, 1);
  if (!patch.has_value()) {
    const bool bf16_only = std::all_of(snapshots.tensors.begin(), snapshots.tensors.end(),
                                       [](const TensorInfo& tensor) { return tensor.dtype == "BF16"; });
    if (patch.error().code == Errc::kUnsupported && !bf16_only) return testing::AssertionSuccess();
    return testing::AssertionFailure() << patch.error().message();
  }
  std::vector<std::byte> target = snapshots.base;
  const Status applied = codec.apply(*patch, snapshots.base, snapshots.tensors, target, 1);
  if (!applied.has_value()) return testing::AssertionFailure() << applied.error().message();
  if (target != snapshots.result) return testing::AssertionFailure() << "the patch gives another result";
  return testing::AssertionSuccess();
}

class EveryCodec : public testing::TestWithParam<Codec> {};

TEST_P(EveryCodec, KeepsSpecialValuesBitForBit) {
  // Zeros, the smallest and largest subnormal and normal numbers, infinities, quiet and signalling NaNs with payloads.
  const std::uint16_t special[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x3f80, 0xbf80,
                                   0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7f81, 0x7fc0, 0xffc0, 0xffff};
  Snapshots snapshots;
  const std::uint64_t count = std::size(special);
  snapshots.add("BF16", {count, count});
  for (std::size_t i = 0; i < count * count; ++i) {
    store_cell(snapshots.base.data(), i, special[i / count]);
    store_cell(snapshots.result.data(), i, special[i % count]);
  }
  EXPECT_TRUE(round_trips(GetParam(), snapshots));
}

TEST_P(EveryCodec, RoundTripsNothingEverythingAndTheEnds) {
  Snapshots snapshots;
  for (const char* dtype : {"BF16", "BF16", "BF16"}) snapshots.add(dtype, {67, 33});
  snapshots.add("BF16", {0});
  snapshots.add("BF16", {1});
  snapshots.add("BF16", {});
  EXPECT_TRUE(round_trips(GetParam(), snapshots));  // nothing changed
  snapshots.result[0] = std::byte{1};
  snapshots.result.back() = std::byte{0x80};
  EXPECT_TRUE(round_trips(GetParam(), snapshots));
  std::fill(snapshots.result.begin(), snapshots.result.end(), std::byte{0x3f});
  EXPECT_TRUE(round_trips(GetParam(), snapshots));
}

TEST_P(EveryCodec, RoundTripsEveryDtypeThatItKnows) {
  for (const char* dtype : {"BF16", "F16", "F32", "F8_E4M3", "F8_E5M2", "I64", "U8"}) {
    Snapshots snapshots;
    snapshots.add(dtype, {100, 30});
    std::mt19937 random(5);
    for (std::size_t i = 0; i < snapshots.base.size(); ++i) {
      snapshots.base[i] = static_cast<std::byte>(random());
      snapshots.result[i] = random() % 50 == 0 ? static_cast<std::byte>(random()) : snapshots.base[i];
    }
    EXPECT_TRUE(round_trips(GetParam(), snapshots));
  }
}

TEST_P(EveryCodec, RoundTripsAnyDensityAndShape) {
  EXPECT_TRUE(rc::check("round trip", [&] {
    Snapshots snapshots;
    const auto tensors = *rc::gen::inRange(1, 4);
    for (int t = 0; t < tensors; ++t) {
      snapshots.add("BF16", {*rc::gen::inRange<std::uint64_t>(0, 200), *rc::gen::inRange<std::uint64_t>(0, 200)});
    }
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    const unsigned one_in = *rc::gen::element(1u, 2u, 3u, 20u, 1000u);
    const unsigned exponents = *rc::gen::element(1u, 4u, 256u);
    for (std::size_t i = 0; i < snapshots.base.size() / 2; ++i) {
      const auto cell = static_cast<std::uint16_t>((random() % exponents) << 7 | (random() & 0x807f));
      const auto moved = static_cast<std::uint16_t>(cell + random() % 700 - 350);
      store_cell(snapshots.base.data(), i, cell);
      store_cell(snapshots.result.data(), i, random() % one_in == 0 ? moved : cell);
    }
    RC_ASSERT(static_cast<bool>(round_trips(GetParam(), snapshots)));
  }));
}

TEST_P(EveryCodec, RefusesAPatchCutShort) {
  Snapshots snapshots;
  snapshots.add("BF16", {64, 64});
  for (std::size_t i = 0; i < 400; ++i) snapshots.result[i * 20] = std::byte{1};
  const auto patch = GetParam().encode(snapshots.base, snapshots.result, snapshots.tensors, 1);
  ASSERT_TRUE(patch.has_value());
  // An empty patch is what some formats say for "no change".
  for (std::size_t bytes = 1; bytes < patch->size(); ++bytes) {
    std::vector<std::byte> target = snapshots.base;
    const auto cut = Bytes(*patch).first(bytes);
    EXPECT_FALSE(GetParam().apply(cut, snapshots.base, snapshots.tensors, target, 1).has_value()) << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, EveryCodec, testing::ValuesIn(bench_codecs().begin(), bench_codecs().end()),
                         [](const auto& codec) {
                           std::string name(codec.param.name);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

// The streams that the format's description fixes, by hand.
TEST(PulseRice, WritesTheBytesThatItsDescriptionGives) {
  Snapshots snapshots;
  snapshots.add("BF16", {8});
  const std::uint16_t cells[] = {0x3f80, 0x3c00, 0x3f80, 0x3f80, 0x3c00, 0x3f80, 0x3f80, 0x3f80};
  for (std::size_t i = 0; i < 8; ++i) {
    store_cell(snapshots.base.data(), i, cells[i]);
    store_cell(snapshots.result.data(), i, cells[i]);
  }
  store_cell(snapshots.result.data(), 7, std::uint16_t{0x3f81});  // exponent 127, rank 5 of 6: up by one
  store_cell(snapshots.result.data(), 1, std::uint16_t{0x3bff});  // exponent 120, all of its cells change: down by one
  store_cell(snapshots.result.data(), 4, std::uint16_t{0x3c80});  // and up by 128, an escaped value
  const auto patch = kPulseRice.encode(snapshots.base, snapshots.result, snapshots.tensors, 1);
  ASSERT_TRUE(patch.has_value());
  const auto content = zstd_decompress(*patch, 1000);
  ASSERT_TRUE(content.has_value());
  // clang-format off
  const std::vector<std::uint8_t> expected = {
      1, 0, 0, 0,                      // one changed tensor
      0, 0, 0, 0, 3, 0, 0, 0,          // tensor 0, three changed cells
      2, 0,                            // two classes
      120, 1, 0, 0, 0, 0, 0, 0, 0, 0,  // exponent 120: complement, no ranks, no block
      127, 0, 1, 0, 0, 0, 7, 0, 0, 0,  // exponent 127: one rank, seven bytes
      1, 1, 0, 0, 0, 0xdf, 0x80,       // k = 1, one unary byte: 5 >> 1 = 2 is "110", padded with ones; remainder 1
      1, 255, 2,                       // zig-zag of -1, the escape, zig-zag of +1
      0, 1,                            // 256: zig-zag of +128
  };
  // clang-format on
  std::vector<std::uint8_t> written;
  for (const std::byte b : *content) written.push_back(std::to_integer<std::uint8_t>(b));
  EXPECT_EQ(written, expected);
}

}  // namespace
}  // namespace weightcast::bench
