#include "patch/codec/byte_rans.h"

#include <algorithm>
#include <numeric>

#include "patch/codec/fixed_math.h"

namespace weightcast {
namespace {

constexpr unsigned kBits = 12;
constexpr std::uint32_t kTotal = 1u << kBits;
constexpr std::uint32_t kLow = 1u << 16;
constexpr std::size_t kLanes = 4;

using Frequencies = std::array<std::uint16_t, 256>;

// At least 1 for each byte that occurs; what is missing or too much is settled with the most frequent, first on a tie.
Frequencies normalise(const ByteCounts& counts) {
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  Frequencies frequencies{};
  std::uint32_t given = 0;
  for (unsigned i = 0; i < 256; ++i) {
    if (counts[i] == 0) continue;
    frequencies[i] = std::uint16_t(std::max<std::uint64_t>(std::uint64_t{counts[i]} * kTotal / total, 1));
    given += frequencies[i];
  }
  while (given != kTotal) {
    auto& most = *std::max_element(frequencies.begin(), frequencies.end());
    const std::uint32_t before = most;
    if (given < kTotal) {
      most = std::uint16_t(most + (kTotal - given));
    } else {
      most = std::uint16_t(most - std::min<std::uint32_t>(given - kTotal, (most + 1u) / 2u));
    }
    given = given + most - before;
  }
  return frequencies;
}

std::array<std::uint16_t, 256> starts_of(const Frequencies& frequencies) {
  std::array<std::uint16_t, 256> starts{};
  std::exclusive_scan(frequencies.begin(), frequencies.end(), starts.begin(), std::uint16_t{0});
  return starts;
}

}  // namespace

ByteCounts count_bytes(Bytes data) {
  // Two tables, because equal neighbours would wait for each other's increment.
  std::array<ByteCounts, 2> counts{};
  std::size_t i = 0;
  for (; i + 2 <= data.size(); i += 2) {
    ++counts[0][std::to_integer<std::size_t>(data[i])];
    ++counts[1][std::to_integer<std::size_t>(data[i + 1])];
  }
  if (i < data.size()) ++counts[0][std::to_integer<std::size_t>(data[i])];
  for (unsigned b = 0; b < 256; ++b) counts[0][b] += counts[1][b];
  return counts[0];
}

double order0_bits(const ByteCounts& counts) {
  double total = 0, bits = 0;
  for (const std::uint32_t count : counts) total += count;
  for (const std::uint32_t count : counts) {
    if (count > 0) bits -= count * portable_log2(count / total);
  }
  return bits;
}

void encode_bytes(Bytes data, const ByteCounts& counts, std::vector<std::byte>& out) {
  const Frequencies frequencies = normalise(counts);
  const auto starts = starts_of(frequencies);
  ByteWriter writer(out);
  for (const std::uint16_t frequency : frequencies) writer.varint(frequency);
  std::array<std::uint32_t, kLanes> states;
  states.fill(kLow);
  std::vector<std::uint16_t> words;
  words.reserve(data.size() / 2);
  for (std::size_t i = data.size(); i-- > 0;) {
    std::uint32_t& state = states[i % kLanes];
    const auto symbol = std::to_integer<std::size_t>(data[i]);
    const std::uint32_t frequency = frequencies[symbol];
    if (std::uint64_t{state} >= (std::uint64_t{kLow >> kBits} << 16) * frequency) {
      words.push_back(std::uint16_t(state));
      state >>= 16;
    }
    state = ((state / frequency) << kBits) + state % frequency + starts[symbol];
  }
  for (const std::uint32_t state : states) writer.fixed(state);
  out.reserve(out.size() + 2 * words.size());
  for (auto word = words.rbegin(); word != words.rend(); ++word) writer.fixed(*word);
}

bool ByteDecoder::start(Bytes coded) {
  static_assert(ByteDecoder::kBits == weightcast::kBits && ByteDecoder::kLanes == weightcast::kLanes);
  ByteReader reader(coded);
  std::uint32_t total = 0;
  for (std::uint16_t& frequency : frequencies_) {
    const std::uint64_t value = reader.varint();
    if (value > kTotal - total) return false;
    frequency = std::uint16_t(value);
    total += frequency;
  }
  if (total != kTotal) return false;
  starts_ = starts_of(frequencies_);
  for (unsigned i = 0; i < 256; ++i) {
    std::fill_n(symbols_.begin() + starts_[i], frequencies_[i], std::uint8_t(i));
  }
  for (std::uint32_t& state : states_) state = reader.fixed<std::uint32_t>();
  words_ = coded.subspan(reader.position());
  return reader.ok();
}

bool ByteDecoder::next(MutableBytes data) {
  std::array<std::uint32_t, kLanes> states = states_;
  std::size_t position = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    std::uint32_t& state = states[i % kLanes];
    const std::uint32_t slot = state & (kTotal - 1);
    const std::uint8_t symbol = symbols_[slot];
    data[i] = std::byte(symbol);
    state = frequencies_[symbol] * (state >> kBits) + slot - starts_[symbol];
    if (state < kLow) {
      if (words_.size() - position < 2) return false;
      state = (state << 16) | std::to_integer<std::uint32_t>(words_[position]) |
              std::to_integer<std::uint32_t>(words_[position + 1]) << 8;
      position += 2;
    }
  }
  words_ = words_.subspan(position);
  std::rotate_copy(states.begin(), states.begin() + data.size() % kLanes, states.end(), states_.begin());
  return true;
}

bool ByteDecoder::finished() const {
  return words_.empty() && std::all_of(states_.begin(), states_.end(), [](auto state) { return state == kLow; });
}

}  // namespace weightcast
