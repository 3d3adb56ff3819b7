#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <memory>
#include <string>

#include "base/digest/checksum.h"

namespace weightcast {

/// SHA-256. Nobody can make other bytes that have it, so what vouches for it vouches for the bytes. A type of its own:
/// a Checksum, which anybody can forge, never stands in its place.
struct ContentDigest {
  static constexpr std::size_t kBytes = 32;
  std::array<std::byte, kBytes> bytes{};

  auto operator<=>(const ContentDigest&) const = default;
  /// 64 lower-case hexadecimal digits.
  [[nodiscard]] std::string hex() const;
};

[[nodiscard]] ContentDigest content_digest_of(Bytes data);

/// The digest of bytes that come in pieces.
class ContentDigestStream {
 public:
  ContentDigestStream();
  ~ContentDigestStream();
  ContentDigestStream(ContentDigestStream&&) noexcept;
  ContentDigestStream& operator=(ContentDigestStream&&) noexcept;

  void reset();
  void update(Bytes data);
  /// Equal to content_digest_of() over all bytes since the last reset(). Resets.
  [[nodiscard]] ContentDigest take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weightcast
