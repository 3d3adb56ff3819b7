#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest/checksum.h"

namespace weightcast {

/// Appends little-endian fields to a byte vector that the caller owns.
class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& out) : out_(out) {}

  template <std::unsigned_integral Int>
  void fixed(Int value) {
    for (std::size_t i = 0; i < sizeof(Int); ++i) out_.push_back(std::byte(std::uint64_t(value) >> (8 * i)));
  }
  /// LEB128: seven bits a byte, low ones first, at most ten bytes.
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(std::byte(value | 0x80));
    out_.push_back(std::byte(value));
  }
  void bytes(Bytes data) { out_.insert(out_.end(), data.begin(), data.end()); }
  void text(std::string_view text) {
    varint(text.size());
    bytes(std::as_bytes(std::span(text.data(), text.size())));
  }
  void digest(const Checksum& digest) { bytes(digest.bytes); }

 private:
  std::vector<std::byte>& out_;
};

/// Reads fields of ByteWriter from untrusted bytes. A read past the end or of a malformed field returns zero, and ok()
/// is false from then on. So a caller may check once after a group of fields.
class ByteReader {
 public:
  explicit ByteReader(Bytes data) : data_(data) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t remaining() const { return data_.size() - position_; }
  [[nodiscard]] std::size_t position() const { return position_; }

  template <std::unsigned_integral Int>
  Int fixed() {
    Int value{};
    const Bytes field = bytes(sizeof(Int));
    for (std::size_t i = 0; i < field.size(); ++i) {
      value = Int(value | Int(std::uint64_t(std::to_integer<std::uint8_t>(field[i])) << (8 * i)));
    }
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      value |= std::uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) {
        // A second spelling of the same number would let two different patches mean the same.
        if ((byte == 0 && shift > 0) || (shift == 63 && byte > 1)) ok_ = false;
        return ok_ ? value : 0;
      }
    }
    ok_ = false;
    return 0;
  }
  Bytes bytes(std::uint64_t count) {
    if (!ok_ || count > remaining()) {
      ok_ = false;
      return {};
    }
    const Bytes field = data_.subspan(position_, std::size_t(count));
    position_ += std::size_t(count);
    return field;
  }
  std::string text(std::size_t bytes_max) {
    const std::uint64_t size = varint();
    if (size > bytes_max) ok_ = false;
    const Bytes field = bytes(ok_ ? size : 0);
    return {reinterpret_cast<const char*>(field.data()), field.size()};
  }
  Checksum digest() {
    Checksum digest;
    if (const Bytes field = bytes(Checksum::kBytes); !field.empty()) {
      std::memcpy(digest.bytes.data(), field.data(), Checksum::kBytes);
    }
    return digest;
  }

 private:
  Bytes data_;
  std::size_t position_ = 0;
  bool ok_ = true;
};

}  // namespace weightcast
