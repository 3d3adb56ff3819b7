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

/// XXH3-128 in its canonical (big-endian) byte order. It detects damage, not forgery.
struct Digest {
  static constexpr std::size_t kBytes = 16;
  std::array<std::byte, kBytes> bytes{};

  auto operator<=>(const Digest&) const = default;
  /// 32 lower-case hexadecimal digits.
  [[nodiscard]] std::string hex() const;
};

[[nodiscard]] Digest digest_of(Bytes data);

/// The digest of bytes that come in pieces. Equal to digest_of() over their concatenation.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(DigestStream&&) noexcept;
  DigestStream& operator=(DigestStream&&) noexcept;

  void reset();
  void update(Bytes data);
  [[nodiscard]] Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weightcast
