#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"

namespace weightcast::bench {

/// Appends little-endian integers and arrays to a growing buffer.
class ByteWriter {
 public:
  template <std::integral T>
  void put(T value) {
    put_array(std::span<const T>(&value, 1));
  }

  template <typename T>
  void put_array(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  void put_leb128(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<std::byte>(value | 0x80));
    bytes_.push_back(static_cast<std::byte>(value));
  }

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what ByteWriter wrote. Past the end it yields zeros and empty spans and remembers it: a decoder looks at
/// failed() where it matters, not after every read.
class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : bytes_(bytes) {}

  template <std::integral T>
  [[nodiscard]] T get() {
    T value{};
    const Bytes from = take(sizeof(T));
    if (!from.empty()) std::memcpy(&value, from.data(), sizeof(T));
    return value;
  }

  [[nodiscard]] std::uint64_t get_leb128() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = get<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    failed_ = true;
    return 0;
  }

  [[nodiscard]] Bytes take(std::size_t count) {
    if (count > bytes_.size()) {
      failed_ = true;
      bytes_ = {};
      return {};
    }
    const Bytes taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }

  [[nodiscard]] std::size_t left() const { return bytes_.size(); }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  Bytes bytes_;
  bool failed_ = false;
};

/// One zstd frame at level 1, content size in its header.
[[nodiscard]] std::vector<std::byte> zstd_compress(Bytes content);

/// The content of one frame. Errors: kCorrupt; kTooLarge when the frame claims more than `content_bytes_max`.
[[nodiscard]] Result<std::vector<std::byte>> zstd_decompress(Bytes frame, std::uint64_t content_bytes_max);

}  // namespace weightcast::bench
