#pragma once

#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "patch/cell.h"

namespace weightcast {

/// Codes cells as byte planes (the first byte of every cell, then the second, ...), each by the least of: one repeated
/// byte, an order-0 entropy code, zstd, as it is. For what the sparse code is wrong for: cells without a base, dense
/// and repetitive changes, and full payloads.
///
/// What is split: with `before` (as many bytes as `cells`) the exclusive or of both; without it the cells themselves,
/// floating point ones rotated left by one bit, so that the whole exponent stands in the highest bytes.
/// `cells` is a multiple of the cell's width. Appends to `out`; once that holds `limit_bytes` or more the rest of the
/// planes is left out, because nobody wants them then.
void encode_planes(CellKind kind, Bytes cells, const std::byte* before, std::size_t limit_bytes,
                   std::vector<std::byte>& out);

/// The reverse: fills all of `cells`. `before` may be `cells` itself. Errors: kCorrupt. Takes at most one byte per cell
/// of memory, whatever the input claims.
Status decode_planes(CellKind kind, Bytes coded, const std::byte* before, MutableBytes cells);

}  // namespace weightcast
