#pragma once

#include <cstddef>
#include <cstdint>

namespace weightcast::bench {

/// Reads memory once, and gives the sum of its words: what no product with these weights can do without.
[[nodiscard]] std::uint64_t read_loop(const std::uint64_t* words, std::size_t count);

}  // namespace weightcast::bench
