#include "patch/codec/entropy/byte_rans.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/result.h"
#include "patch/codec/byte_io.h"
#include "patch/codec/entropy/fixed_math.h"

namespace weightcast {
namespace {

using Frequencies = std::array<std::uint16_t, 256>;

// At least 1 for each byte that occurs; what is missing or too much is settled with the most frequent, first on a tie.
// With two bytes or more none has all.
Frequencies normalise(const ByteCounts& counts) {
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  Frequencies frequencies{};
  std::uint32_t given = 0;
  for (unsigned i = 0; i < 256; ++i) {
    if (counts[i] == 0) continue;
    frequencies[i] = std::uint16_t(std::max<std::uint64_t>(std::uint64_t{counts[i]} * kByteTotal / total, 1));
    given += frequencies[i];
  }
  while (given != kByteTotal) {
    auto& most = *std::max_element(frequencies.begin(), frequencies.end());
    const std::uint32_t before = most;
    if (given < kByteTotal) {
      most = std::uint16_t(most + (kByteTotal - given));
    } else {
      most = std::uint16_t(most - std::min<std::uint32_t>(given - kByteTotal, (most + 1u) / 2u));
    }
    given = given + most - before;
  }
  return frequencies;
}

class ByteCounter {
 public:
  void add(Bytes data) {
    std::size_t i = 0;
    for (; i + 8 <= data.size(); i += 8) {
      std::uint64_t eight;
      std::memcpy(&eight, data.data() + i, sizeof eight);
      for (unsigned lane = 0; lane < 8; ++lane) ++tables_[lane][eight >> (8 * lane) & 0xff];
    }
    for (; i < data.size(); ++i) ++tables_[0][std::to_integer<std::size_t>(data[i])];
  }
  [[nodiscard]] ByteCounts counts() const {
    ByteCounts sum = tables_[0];
    for (unsigned b = 0; b < 256; ++b) {
      for (unsigned lane = 1; lane < 8; ++lane) sum[b] += tables_[lane][b];
    }
    return sum;
  }

 private:
  // Eight, because equal neighbours would wait for each other's increment.
  std::array<ByteCounts, 8> tables_{};
};

}  // namespace

ByteCounts count_bytes(Bytes data) {
  ByteCounter counter;
  counter.add(data);
  return counter.counts();
}

ByteCounts sample_bytes(const Kernels& kernels, Bytes data) {
  // A run of every fourth, and no multiple of any length of a tensor's row, so that all columns are met.
  constexpr std::size_t kRunBytes = 256, kStrideBytes = 1056;
  // Rare bytes that the sample lacks get a share that they need not be worth. What few of them take is nothing; where
  // there are many the plane is no range of exponents.
  constexpr unsigned kUnseenMax = 8;
  if (data.size() < 64 * kStrideBytes) return count_bytes(data);
  ByteCounter counter;
  for (std::size_t at = 0; at + kRunBytes <= data.size(); at += kStrideBytes) counter.add(data.subspan(at, kRunBytes));
  ByteCounts counts = counter.counts();
  const ByteRange range = kernels.range(data.data(), data.size());
  unsigned unseen = 0;
  for (unsigned byte = range.least; byte <= range.greatest; ++byte) {
    if (counts[byte] != 0) continue;
    counts[byte] = 1;
    ++unseen;
  }
  return unseen <= kUnseenMax ? counts : count_bytes(data);
}

double order0_bits(const ByteCounts& counts) {
  double total = 0, bits = 0;
  for (const std::uint32_t count : counts) total += count;
  for (const std::uint32_t count : counts) {
    if (count > 0) bits -= count * portable_log2(count / total);
  }
  return bits;
}

void encode_bytes(const Kernels& kernels, Bytes data, const ByteCounts& counts, std::vector<std::uint16_t>& scratch,
                  std::vector<std::byte>& out, ByteTable table) {
  const Frequencies frequencies = normalise(counts);
  ByteWriter writer(out);
  ByteSymbols symbols{};
  unsigned given = 256;
  if (table == ByteTable::kUpToLast) {
    while (frequencies[given - 1] == 0) --given;
    writer.varint(given);
  }
  std::uint32_t start = 0;
  for (unsigned byte = 0; byte < given; ++byte) {
    writer.varint(frequencies[byte]);
    symbols[byte] = frequencies[byte] | start << 16;
    start += frequencies[byte];
  }
  WC_CHECK(*std::max_element(frequencies.begin(), frequencies.end()) < kByteTotal);

  ByteStates states;
  states.fill(kByteStateLow);
  if (scratch.size() < data.size() + kByteWordsSlack) scratch.resize(data.size() + kByteWordsSlack);
  std::uint16_t* words = scratch.data() + scratch.size();
  const std::size_t whole = data.size() / kByteLanes * kByteLanes;
  // The last group may be short: the first lanes have one byte more than the others.
  words = scalar_kernels().put_bytes(symbols, states, data.data() + whole, data.size() - whole, words);
  words = kernels.put_bytes(symbols, states, data.data(), whole, words);
  for (const std::uint32_t state : states) writer.fixed(state);
  static_assert(std::endian::native == std::endian::little);
  writer.bytes(std::as_bytes(std::span(words, scratch.data() + scratch.size())));
}

bool ByteDecoder::start(const Kernels& kernels, Bytes coded, ByteTable table) {
  kernels_ = &kernels;
  ByteReader reader(coded);
  const std::uint64_t given = table == ByteTable::kAll ? 256 : reader.varint();
  if (given > 256) return false;
  std::uint32_t slot = 0;
  for (std::uint32_t byte = 0; byte < given; ++byte) {
    const std::uint64_t frequency = reader.varint();
    if (frequency >= kByteTotal || frequency > kByteTotal - slot) return false;
    if (frequency == 0 && table == ByteTable::kUpToLast && byte + 1 == given) return false;
    for (std::uint32_t i = 0; i < frequency; ++i) {
      slots_[slot++] = std::uint32_t(frequency) | i << 12 | byte << 24;
    }
  }
  if (slot != kByteTotal) return false;
  for (std::uint32_t& state : states_) {
    state = reader.fixed<std::uint32_t>();
    if (state < kByteStateLow || state >= kByteStateEnd) return false;
  }
  words_ = coded.subspan(reader.position());
  return reader.ok();
}

bool ByteDecoder::take_one(std::uint32_t& state, std::byte& byte) {
  const std::uint32_t slot = slots_[state % kByteTotal];
  byte = std::byte(slot >> 24);
  state = (slot & 0xfff) * (state >> kByteBits) + (slot >> 12 & 0xfff);
  if (state >= kByteStateLow) return true;
  if (words_.size() < 2) return false;
  state = (state << 16) | std::to_integer<std::uint32_t>(words_[0]) | std::to_integer<std::uint32_t>(words_[1]) << 8;
  words_ = words_.subspan(2);
  return true;
}

bool ByteDecoder::next(MutableBytes data) {
  const std::byte* words = words_.data();
  std::size_t done = kernels_->take_bytes(slots_, states_, words, words + words_.size(), data.data(), data.size());
  words_ = words_.subspan(std::size_t(words - words_.data()));
  for (; done < data.size(); ++done) {
    if (!take_one(states_[done % kByteLanes], data[done])) return false;
  }
  std::rotate(states_.begin(), states_.begin() + data.size() % kByteLanes, states_.end());
  return true;
}

bool ByteDecoder::next_cells(Bytes low, bool rotate, MutableBytes cells) {
  const std::byte* words = words_.data();
  const std::size_t done =
      kernels_->take_cells(slots_, states_, words, words + words_.size(), low.data(), rotate, cells.data(), low.size());
  words_ = words_.subspan(std::size_t(words - words_.data()));
  // Whole groups are done, so the first state's turn is next. The last ones go piece by piece.
  std::array<std::byte, 8 * kByteLanes> high;
  for (std::size_t at = done; at < low.size(); at += high.size()) {
    const std::size_t count = std::min(high.size(), low.size() - at);
    if (!next(MutableBytes(high).first(count))) return false;
    const std::byte* const planes[] = {low.data() + at, high.data()};
    kernels_->merge(2, rotate, planes, nullptr, count, cells.data() + 2 * at);
  }
  return true;
}

bool ByteDecoder::finished() const {
  return words_.empty() &&
         std::all_of(states_.begin(), states_.end(), [](auto state) { return state == kByteStateLow; });
}

}  // namespace weightcast
