#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/digest/checksum.h"
#include "patch/codec/cell.h"

namespace weightcast::bench {

/// A kind of snapshot to pack.
struct PackedContentSpec {
  std::string_view name;
  CellKind kind;
};

/// bf16, f16 and f8: weights as BF16, F16 and F8_E4M3. moments: both moments of AdamW, as F32.
[[nodiscard]] std::span<const PackedContentSpec> packed_contents();

/// Cells of tensors of 4 Mi cells with rows of 2048. `bytes` is rounded down to whole rows, and is one row at least.
///
/// Weights are normal. A tensor's standard deviation lies between 0.005 and 0.08, a row's within a quarter of that. F8
/// is scaled as trainers do: by tensor, so that the largest weight stays below 448. Of the moments one tensor in two
/// holds first ones (normal), the other second ones (squares around their mean), with rows that differ as gradients do.
/// The bytes depend on `spec`, `bytes`, `seed`
/// and the C library's exp2() alone.
[[nodiscard]] std::vector<std::byte> make_packed_content(const PackedContentSpec& spec, std::uint64_t bytes,
                                                         std::uint64_t seed, unsigned threads);

}  // namespace weightcast::bench
