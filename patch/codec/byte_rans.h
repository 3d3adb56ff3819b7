#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/digest.h"
#include "patch/codec/byte_io.h"

namespace weightcast {

using ByteCounts = std::array<std::uint32_t, 256>;

[[nodiscard]] ByteCounts count_bytes(Bytes data);
/// What an ideal order-0 code would take.
[[nodiscard]] double order0_bits(const ByteCounts& counts);

/// Order-0 entropy code of bytes with one static table: frequencies in 1/4096, then four interleaved rANS streams,
/// which a processor decodes side by side. `data` is not empty and `counts` is count_bytes(data). Appends to `out`.
void encode_bytes(Bytes data, const ByteCounts& counts, std::vector<std::byte>& out);

/// Reads what encode_bytes() wrote, some bytes at a time.
class ByteDecoder {
 public:
  /// `coded` outlives the decoder. False when it cannot be what encode_bytes() makes.
  [[nodiscard]] bool start(Bytes coded);
  /// The next bytes, all of `data`; false when the code ends before.
  [[nodiscard]] bool next(MutableBytes data);
  /// Nothing is left over.
  [[nodiscard]] bool finished() const;

 private:
  static constexpr unsigned kBits = 12;
  static constexpr std::size_t kLanes = 4;

  std::array<std::uint16_t, 256> frequencies_{};
  std::array<std::uint16_t, 256> starts_{};
  std::array<std::uint8_t, 1 << kBits> symbols_{};  // by slot
  std::array<std::uint32_t, kLanes> states_{};      // the first one's turn is next
  Bytes words_;                                     // not read yet
};

}  // namespace weightcast
