#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weightcast {

/// Cells of one tensor, from `first` on.
struct Shard {
  std::size_t tensor = 0;
  std::size_t first = 0;
  std::size_t cells = 0;

  bool operator==(const Shard&) const = default;
};

/// Which cells each rank keeps the optimiser's state of (ZeRO-1): those of rank 0 first, in the order of tensors and
/// cells, then those of rank 1, and so on. Ranks' shares differ by less than two blocks of `block_cells`, and a shard
/// begins at a multiple of that in its tensor: so an optimiser over shards sums in the order in which one over whole
/// tensors does.
[[nodiscard]] std::vector<std::vector<Shard>> make_shards(std::span<const std::size_t> tensor_cells,
                                                          std::uint32_t ranks, std::size_t block_cells);

/// How many cells `shards` have together.
[[nodiscard]] std::size_t cells_of(std::span<const Shard> shards);

/// How many cells of `shards` belong to tensors `first` to `last` - 1.
[[nodiscard]] std::size_t cells_between(std::span<const Shard> shards, std::size_t first, std::size_t last);

}  // namespace weightcast
