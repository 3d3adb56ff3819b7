#include "transport/core/manifest/chunk_set.h"

#include "base/result.h"

namespace weightcast {
namespace {

constexpr std::uint32_t kWordBits = 64;

std::uint64_t mask_from(std::uint32_t bit) { return ~std::uint64_t{0} << bit; }

/// The least chunk >= from that is set in word(0) to word(count - 1).
template <typename Word>
std::optional<ChunkIndex> next_bit(std::size_t count, ChunkIndex from, const Word& word) {
  for (std::uint32_t w = from.value / kWordBits; w < count; ++w) {
    std::uint64_t bits = word(w);
    if (w == from.value / kWordBits) bits &= mask_from(from.value % kWordBits);
    if (bits != 0) return ChunkIndex{w * kWordBits + static_cast<std::uint32_t>(std::countr_zero(bits))};
  }
  return std::nullopt;
}

}  // namespace

ChunkSet::ChunkSet(std::uint32_t size, bool full)
    : size_(size), count_(full ? size : 0), words_((size + kWordBits - 1) / kWordBits, full ? ~std::uint64_t{0} : 0) {
  if (full && size % kWordBits != 0) words_.back() = ~mask_from(size % kWordBits);
}

void ChunkSet::grow(std::uint32_t size) {
  WC_CHECK(size >= size_);
  size_ = size;
  words_.resize((size + kWordBits - 1) / kWordBits, 0);
}

bool ChunkSet::insert(ChunkIndex chunk) {
  WC_CHECK(chunk.value < size_);
  std::uint64_t& word = words_[chunk.value / kWordBits];
  const std::uint64_t bit = std::uint64_t{1} << (chunk.value % kWordBits);
  if ((word & bit) != 0) return false;
  word |= bit;
  ++count_;
  return true;
}

bool ChunkSet::erase(ChunkIndex chunk) {
  if (!contains(chunk)) return false;
  words_[chunk.value / kWordBits] &= ~(std::uint64_t{1} << (chunk.value % kWordBits));
  --count_;
  return true;
}

std::optional<ChunkIndex> ChunkSet::next_in(ChunkIndex from) const {
  return next_bit(words_.size(), from, [&](std::uint32_t w) { return words_[w]; });
}

std::optional<ChunkIndex> ChunkSet::next_missing(ChunkIndex from) const {
  const auto found = next_bit(words_.size(), from, [&](std::uint32_t w) { return ~words_[w]; });
  return found && found->value < size_ ? found : std::nullopt;
}

std::optional<ChunkIndex> ChunkSet::next_in_without(const ChunkSet& other, ChunkIndex from) const {
  WC_CHECK(other.size_ == size_);
  return next_bit(words_.size(), from, [&](std::uint32_t w) { return words_[w] & ~other.words_[w]; });
}

std::string ChunkSet::to_bytes() const {
  std::string out((size_ + 7) / 8, '\0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(words_[i / 8] >> (8 * (i % 8)));
  while (!out.empty() && out.back() == '\0') out.pop_back();
  return out;
}

ChunkSet ChunkSet::from_bytes(std::uint32_t size, std::string_view bytes) {
  ChunkSet set(size);
  for (std::uint32_t i = 0; i < size && i / 8 < bytes.size(); ++i) {
    if ((static_cast<unsigned char>(bytes[i / 8]) >> (i % 8)) & 1) set.insert(ChunkIndex{i});
  }
  return set;
}

}  // namespace weightcast
