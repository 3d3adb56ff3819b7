#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weightcast {

/// A number for `seed`, a `stream` and the n-th draw from it; streams are independent of each other. The n-th
/// draw needs none of those before it.
[[nodiscard]] std::uint64_t drawn(std::uint64_t seed, std::uint64_t stream, std::uint64_t n);

/// 0 to count - 1 in an order that depends on `seed` alone.
[[nodiscard]] std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed);

}  // namespace weightcast
