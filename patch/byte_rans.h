#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/digest.h"
#include "patch/byte_io.h"

namespace weightcast {

using ByteCounts = std::array<std::uint32_t, 256>;

[[nodiscard]] ByteCounts count_bytes(Bytes data);
/// What an ideal order-0 code would take.
[[nodiscard]] double order0_bits(const ByteCounts& counts);

/// Order-0 entropy code of bytes with one static table: frequencies in 1/4096, then four interleaved rANS streams,
/// which a processor decodes side by side. `data` is not empty and `counts` is count_bytes(data). Appends to `out`.
void encode_bytes(Bytes data, const ByteCounts& counts, std::vector<std::byte>& out);

/// Fills all of `data`; false when `coded` is not what encode_bytes() makes of that many bytes.
[[nodiscard]] bool decode_bytes(Bytes coded, MutableBytes data);

}  // namespace weightcast
