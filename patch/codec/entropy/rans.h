#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/digest/checksum.h"
#include "patch/codec/entropy/fixed_math.h"

namespace weightcast {

// Range asymmetric numeral systems (Duda, arXiv 1311.2540) with a 63-bit state that is refilled 32 bits at a time. A
// symbol owns [start, start + frequency) of 2^bits. The caller computes the interval, so frequencies of up to 28 bits
// need no table. The encoder writes backwards and the decoder reads forwards: put() takes the last symbol first.

inline constexpr std::uint64_t kRansLow = std::uint64_t{1} << 31;

/// A symbol's division by its frequency is done beside the chain of states, which it would stretch by half: as a
/// product with this, which for a state below 2^63 gives the quotient or one less.
[[nodiscard]] constexpr std::uint64_t rans_reciprocal(std::uint32_t frequency) { return ~std::uint64_t{0} / frequency; }

class RansEncoder {
 public:
  /// Makes room for as many symbols, each of at most one word. To be called before put().
  void make_room(std::size_t symbols) {
    if (words_.size() - used_ < symbols) words_.resize(std::max(words_.size() + words_.size() / 2, used_ + symbols));
  }
  /// `reciprocal`: that of `frequency`.
  void put(std::uint32_t start, std::uint32_t frequency, std::uint64_t reciprocal, unsigned bits) {
    shrink(((kRansLow >> bits) << 32) * frequency);
    std::uint64_t quotient = multiply_high(state_, reciprocal);
    std::uint64_t rest = state_ - quotient * frequency;
    // No branch, because it would be mispredicted.
    const std::uint64_t low = rest >= frequency;
    quotient += low;
    rest -= frequency & (0 - low);
    state_ = (quotient << bits) + rest + start;
  }
  /// Puts `bits` <= 16 uniformly distributed bits.
  void put_uniform(std::uint32_t value, unsigned bits) {
    shrink((kRansLow >> bits) << 32);
    state_ = (state_ << bits) + value;
  }

  /// Appends the stream to `out`: the final state, then the words in the order of reading. Resets the encoder, which
  /// keeps its memory.
  void finish(std::vector<std::byte>& out) {
    std::size_t end = out.size();
    out.resize(end + size_bytes());
    const auto append = [&out, &end](std::uint32_t word) {
      static_assert(std::endian::native == std::endian::little);
      std::memcpy(out.data() + end, &word, sizeof word);
      end += sizeof word;
    };
    append(std::uint32_t(state_ >> 32));
    append(std::uint32_t(state_));
    while (used_ > 0) append(words_[--used_]);
    state_ = kRansLow;
  }
  /// Bytes that finish() will append.
  [[nodiscard]] std::size_t size_bytes() const { return 4 * (used_ + 2); }

 private:
  /// Moves a word out of a state that would grow too large. Both cases are as good as random, and a branch would be
  /// mispredicted. So this always writes the word, and counts it only if it is needed.
  void shrink(std::uint64_t limit) {
    const bool full = state_ >= limit;
    words_[used_] = std::uint32_t(state_);
    used_ += full;
    state_ >>= unsigned{full} << 5;
  }

  std::uint64_t state_ = kRansLow;
  std::vector<std::uint32_t> words_;
  std::size_t used_ = 0;
};

class RansDecoder {
 public:
  explicit RansDecoder(Bytes stream) : stream_(stream) {
    state_ = std::uint64_t{next_word()} << 32;
    state_ |= next_word();
    // Above the range the arithmetic would overflow; only a damaged stream can be there.
    if (state_ >> 63 != 0) {
      state_ = kRansLow;
      ok_ = false;
    }
  }

  [[nodiscard]] std::uint32_t slot(unsigned bits) const {
    return std::uint32_t(state_ & ((std::uint64_t{1} << bits) - 1));
  }
  /// `start` and `frequency` are those of the symbol that owns slot(bits).
  void consume(std::uint32_t start, std::uint32_t frequency, unsigned bits) {
    state_ = std::uint64_t{frequency} * (state_ >> bits) + slot(bits) - start;
    const std::uint64_t low = state_ < kRansLow;
    if (stream_.size() - position_ < 4) [[unlikely]] {
      if (low != 0) state_ = (state_ << 32) | next_word();
      return;
    }
    // No branch, because it would be mispredicted: this always reads the word, and uses it only if it is needed.
    std::uint32_t word;
    std::memcpy(&word, stream_.data() + position_, sizeof word);
    state_ = (state_ << (low << 5)) | (word & (0 - low));
    position_ += low << 2;
  }
  std::uint32_t take_uniform(unsigned bits) {
    const std::uint32_t value = slot(bits);
    consume(value, 1, bits);
    return value;
  }

  /// Whether all reads so far lay within the stream.
  [[nodiscard]] bool ok() const { return ok_; }
  /// Whether exactly the whole stream was read, and the state is the encoder's initial one.
  [[nodiscard]] bool finished() const { return ok_ && position_ == stream_.size() && state_ == kRansLow; }

 private:
  std::uint32_t next_word() {
    if (stream_.size() - position_ < 4) {
      ok_ = false;
      return 0;
    }
    std::uint32_t word;
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&word, stream_.data() + position_, sizeof word);
    position_ += sizeof word;
    return word;
  }

  Bytes stream_;
  std::size_t position_ = 0;
  std::uint64_t state_ = 0;
  bool ok_ = true;
};

}  // namespace weightcast
