#include "patch/codec/entropy/byte_rans.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "patch/codec/byte_io.h"

namespace weightcast {
namespace {

/// Bytes of which small ones are more frequent, by half from each to the next where `skew` is 1.
std::vector<std::byte> make_bytes(std::size_t count, unsigned skew, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) {
    const std::uint64_t word = random();
    byte = skew == 0 ? std::byte(word) : std::byte(unsigned(std::countl_zero(word | 1)) / skew);
  }
  return bytes;
}

std::vector<std::byte> encode(const Kernels& kernels, Bytes data) {
  std::vector<std::uint16_t> scratch;
  std::vector<std::byte> coded;
  encode_bytes(kernels, data, count_bytes(data), scratch, coded);
  return coded;
}

/// Where the states begin.
std::size_t table_bytes(Bytes coded) {
  ByteReader reader(coded);
  for (unsigned byte = 0; byte < 256; ++byte) static_cast<void>(reader.varint());
  return reader.position();
}

RC_GTEST_PROP(ByteRans, AllKernelsTakeCellsAsBytesThatAreMerged, ()) {
  const std::size_t count = *rc::gen::element<std::size_t>(2, 31, 32, 33, 64, 1000, 4096, 50'001);
  std::vector<std::byte> high = make_bytes(count, 1, *rc::gen::arbitrary<std::uint64_t>());
  high[0] = high[1] ^ std::byte{1};
  const std::vector<std::byte> low = make_bytes(count, 0, *rc::gen::arbitrary<std::uint64_t>());
  const bool rotate = *rc::gen::arbitrary<bool>();
  const std::byte* const planes[] = {low.data(), high.data()};
  std::vector<std::byte> expected(2 * count);
  scalar_kernels().merge(2, rotate, planes, nullptr, count, expected.data());
  const std::vector<std::byte> coded = encode(scalar_kernels(), high);
  for (const Kernels* kernels : available_kernels()) {
    ByteDecoder decoder;
    RC_ASSERT(decoder.start(*kernels, coded));
    std::vector<std::byte> cells(2 * count);
    for (std::size_t at = 0; at < count;) {
      const std::size_t size =
          std::min(count - at, *rc::gen::element<std::size_t>(1, 5, 32, 33, 64, 300, 5000, 60'000));
      RC_ASSERT(
          decoder.next_cells(Bytes(low).subspan(at, size), rotate, MutableBytes(cells).subspan(2 * at, 2 * size)));
      at += size;
    }
    RC_ASSERT(cells == expected);
    RC_ASSERT(decoder.finished());
    // Without its last word it ends before the cells do.
    ByteDecoder cut;
    RC_ASSERT(cut.start(*kernels, Bytes(coded).first(coded.size() - 2)) ==
              (coded.size() - 2 >= table_bytes(coded) + 128));
    if (coded.size() - 2 >= table_bytes(coded) + 128) RC_ASSERT(!cut.next_cells(low, rotate, cells));
  }
}

TEST(ByteRans, AllKernelsDivideAnyStateByAnyFrequency) {
  std::mt19937_64 random(1);
  for (std::uint32_t frequency = 1; frequency < kByteTotal; ++frequency) {
    ByteSymbols symbols{};
    symbols[7] = frequency | (kByteTotal - frequency) << 16;
    // States around multiples of the frequency, up to the greatest that takes no word and to the greatest of all.
    ByteStates states;
    const std::uint32_t full = frequency << (31 - kByteBits);
    for (std::size_t lane = 0; lane < kByteLanes; ++lane) {
      const std::uint32_t multiple = std::uint32_t(random() % full) / frequency * frequency;
      const std::uint32_t near[] = {multiple, multiple - 1, full - 1, full, full - frequency, kByteStateEnd - 1};
      states[lane] = std::clamp(near[lane % 6], kByteStateLow, kByteStateEnd - 1);
    }
    const std::vector<std::byte> bytes(kByteLanes, std::byte{7});
    const auto put = [&](const Kernels& kernels) {
      std::vector<std::uint16_t> words(kByteLanes + kByteWordsSlack);
      ByteStates after = states;
      const std::uint16_t* lowest =
          kernels.put_bytes(symbols, after, bytes.data(), bytes.size(), words.data() + words.size());
      return std::pair(after, std::vector(lowest, const_cast<const std::uint16_t*>(words.data() + words.size())));
    };
    const auto expected = put(scalar_kernels());
    for (const Kernels* kernels : available_kernels()) ASSERT_EQ(put(*kernels), expected) << kernels->name << frequency;
  }
}

RC_GTEST_PROP(ByteRans, ASampleHasEveryByteThatOccurs, ()) {
  const std::size_t count = *rc::gen::element<std::size_t>(2, 1000, 67'583, 67'584, 100'000, 500'003);
  std::vector<std::byte> data = make_bytes(count, *rc::gen::inRange(0u, 4u), *rc::gen::arbitrary<std::uint64_t>());
  for (const auto rare : *rc::gen::container<std::vector<std::uint8_t>>(rc::gen::arbitrary<std::uint8_t>())) {
    data[*rc::gen::inRange<std::size_t>(0, count)] = std::byte(rare);
  }
  const ByteCounts exact = count_bytes(data), sample = sample_bytes(scalar_kernels(), data);
  for (unsigned byte = 0; byte < 256; ++byte) RC_ASSERT(exact[byte] == 0 || sample[byte] > 0);
  for (const Kernels* kernels : available_kernels()) RC_ASSERT(sample_bytes(*kernels, data) == sample);
  std::vector<std::uint16_t> scratch;
  std::vector<std::byte> coded, decoded(count);
  if (std::ranges::count_if(sample, [](auto n) { return n > 0; }) < 2) return;
  encode_bytes(best_kernels(), data, sample, scratch, coded);
  ByteDecoder decoder;
  RC_ASSERT(decoder.start(best_kernels(), coded) && decoder.next(decoded) && decoder.finished());
  RC_ASSERT(decoded == data);
}

TEST(ByteRans, ASampleCostsNextToNothing) {
  // As a plane of exponents: by half from each to the next, with rows of 2048 of which each second is shifted.
  std::vector<std::byte> data = make_bytes(1 << 19, 1, 3);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = std::byte(std::to_integer<unsigned>(data[i]) + i / 2048 % 2);
  std::vector<std::uint16_t> scratch;
  std::vector<std::byte> coded;
  encode_bytes(best_kernels(), data, sample_bytes(best_kernels(), data), scratch, coded);
  EXPECT_LT(double(coded.size()), 1.001 * double(encode(best_kernels(), data).size()));
  EXPECT_LT(double(coded.size()), 1.002 * order0_bits(count_bytes(data)) / 8 + 400);
}

TEST(ByteRans, ASampleIsExactWhereManyBytesWouldBeMissing) {
  // Two bytes far apart: all between them would get a share.
  std::vector<std::byte> data(100'000, std::byte{3});
  for (std::size_t i = 0; i < data.size(); i += 2) data[i] = std::byte{250};
  EXPECT_EQ(sample_bytes(best_kernels(), data), count_bytes(data));
}

RC_GTEST_PROP(ByteRans, AllKernelsMakeTheSameAndReadItInWindowsOfAnyLength, ()) {
  const std::size_t count = *rc::gen::element<std::size_t>(2, 3, 31, 32, 33, 63, 64, 65, 1000, 4096, 50'001);
  const unsigned skew = *rc::gen::inRange(0u, 4u);
  std::vector<std::byte> data = make_bytes(count, skew, *rc::gen::arbitrary<std::uint64_t>());
  if (std::ranges::all_of(data, [&](std::byte byte) { return byte == data[0]; })) data[0] ^= std::byte{1};
  const std::vector<std::byte> expected = encode(scalar_kernels(), data);
  for (const Kernels* kernels : available_kernels()) {
    RC_ASSERT(encode(*kernels, data) == expected);
    ByteDecoder decoder;
    RC_ASSERT(decoder.start(*kernels, expected));
    std::vector<std::byte> decoded(count);
    for (std::size_t at = 0; at < count;) {
      const std::size_t size = std::min(count - at, *rc::gen::element<std::size_t>(1, 5, 32, 33, 64, 5000, 60'000));
      RC_ASSERT(decoder.next(MutableBytes(decoded).subspan(at, size)));
      at += size;
    }
    RC_ASSERT(decoded == data);
    RC_ASSERT(decoder.finished());
  }
}

TEST(ByteRans, StaysWithinATenthOfAPercentOfTheEntropy) {
  for (const unsigned skew : {1u, 2u, 3u}) {
    const std::vector<std::byte> data = make_bytes(1 << 20, skew, skew);
    const double ideal = order0_bits(count_bytes(data)) / 8;
    EXPECT_LT(double(encode(best_kernels(), data).size()), 1.001 * ideal + 500) << skew;
  }
}

// Whatever a damaged code holds, all kernels agree on it, and none reads beyond it.
RC_GTEST_PROP(ByteRans, DamagedCodesGiveTheSameOnAllKernels, ()) {
  const std::vector<std::byte> data = make_bytes(5000, 1, 7);
  std::vector<std::byte> coded = encode(scalar_kernels(), data);
  coded[*rc::gen::inRange<std::size_t>(0, coded.size())] ^= std::byte(*rc::gen::inRange(1, 256));
  coded.resize(*rc::gen::inRange<std::size_t>(0, coded.size() + 1));
  struct Outcome {
    bool started = false, read = false, finished = false;
    std::vector<std::byte> bytes;
    bool operator==(const Outcome&) const = default;
  };
  const auto decode = [&](const Kernels& kernels) {
    // Of its own length on the heap, so that a sanitizer sees the end.
    const std::vector<std::byte> exact(coded);
    Outcome outcome{false, false, false, std::vector<std::byte>(data.size())};
    ByteDecoder decoder;
    outcome.started = decoder.start(kernels, exact);
    outcome.read = outcome.started && decoder.next(outcome.bytes);
    if (!outcome.read) outcome.bytes.clear();  // where a decoder noticed is its own affair
    outcome.finished = outcome.read && decoder.finished();
    return outcome;
  };
  const Outcome expected = decode(scalar_kernels());
  for (const Kernels* kernels : available_kernels()) RC_ASSERT(decode(*kernels) == expected);
}

TEST(ByteRans, RefusesTablesAndStatesOutOfTheirLimits) {
  const std::vector<std::byte> data = make_bytes(100, 1, 1);
  const std::vector<std::byte> coded = encode(scalar_kernels(), data);
  const auto starts = [](std::vector<std::byte> changed) { return ByteDecoder().start(scalar_kernels(), changed); };
  ASSERT_TRUE(starts(coded));

  std::vector<std::byte> all_for_one(256 + 1 + 4 * kByteLanes);
  all_for_one[0] = std::byte{0x80};  // 4096 as a varint
  all_for_one[1] = std::byte{0x20};
  for (std::size_t lane = 0; lane < kByteLanes; ++lane) all_for_one[257 + 4 * lane + 1] = std::byte{0x80};
  EXPECT_FALSE(starts(all_for_one));

  // States stand behind the table; the last of them low, then high.
  std::vector<std::byte> table_and_states(coded.begin(),
                                          coded.begin() + std::ptrdiff_t(table_bytes(coded) + 4 * kByteLanes));
  const std::size_t last = table_and_states.size() - 4;
  std::fill(table_and_states.begin() + std::ptrdiff_t(last), table_and_states.end(), std::byte{0});
  EXPECT_FALSE(starts(table_and_states));
  table_and_states[last + 3] = std::byte{0x80};
  EXPECT_FALSE(starts(table_and_states));
  table_and_states[last + 3] = std::byte{0x7f};
  EXPECT_TRUE(starts(table_and_states));

  std::vector<std::byte> cut = coded;
  cut.resize(200);
  EXPECT_FALSE(starts(cut));
  std::vector<std::byte> too_many = coded;
  too_many[table_bytes(coded) - 1] = std::byte{0x7f};  // the last byte's frequency, which was 0
  EXPECT_FALSE(starts(too_many));
}

}  // namespace
}  // namespace weightcast
