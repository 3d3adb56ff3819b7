#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weightcast {

/// Divides `count` items into `parts` runs of items in `order`, whose lengths differ by one at most; the longer ones
/// come first. `parts` is at most `count`.
[[nodiscard]] std::vector<std::vector<std::size_t>> divide(std::span<const std::size_t> order, std::size_t parts);

/// Groups `members`, in their order, so that the tokens of a group are at most `tokens_max`; a longer sequence is a
/// group of its own. `lengths[i]` is the number of tokens of sequence i.
[[nodiscard]] std::vector<std::vector<std::size_t>> pack(std::span<const std::size_t> members,
                                                         std::span<const std::size_t> lengths,
                                                         std::uint64_t tokens_max);

}  // namespace weightcast
