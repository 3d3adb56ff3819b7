#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace weightcast {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

/// XXH3-128 in its canonical (big-endian) byte order: for what this node's own disk and programs may have damaged. It
/// detects accidents, not forgery; for what others send there is ContentDigest.
struct Checksum {
  static constexpr std::size_t kBytes = 16;
  std::array<std::byte, kBytes> bytes{};

  auto operator<=>(const Checksum&) const = default;
  /// 32 lower-case hexadecimal digits.
  [[nodiscard]] std::string hex() const;
};

[[nodiscard]] Checksum checksum_of(Bytes data);

/// The checksum of bytes that come in pieces. Equal to checksum_of() over their concatenation.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();
  ChecksumStream(ChecksumStream&&) noexcept;
  ChecksumStream& operator=(ChecksumStream&&) noexcept;

  void reset();
  void update(Bytes data);
  [[nodiscard]] Checksum digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weightcast
