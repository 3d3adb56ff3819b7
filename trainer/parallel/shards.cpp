#include "trainer/parallel/shards.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace weightcast {

std::vector<std::vector<Shard>> make_shards(std::span<const std::size_t> tensor_cells, std::uint32_t ranks,
                                            std::size_t block_cells) {
  std::vector<std::vector<Shard>> shards(ranks);
  const std::size_t total = std::accumulate(tensor_cells.begin(), tensor_cells.end(), std::size_t{0});
  std::size_t done = 0;
  std::uint32_t rank = 0;
  for (std::size_t tensor = 0; tensor < tensor_cells.size(); ++tensor) {
    for (std::size_t first = 0; first < tensor_cells[tensor]; first += block_cells) {
      const std::size_t cells = std::min(block_cells, tensor_cells[tensor] - first);
      // A block belongs to the rank in whose share its middle lies.
      while (rank + 1 < ranks && (done + cells / 2) * ranks >= total * (rank + 1)) ++rank;
      std::vector<Shard>& mine = shards[rank];
      if (!mine.empty() && mine.back().tensor == tensor) {
        mine.back().cells += cells;
      } else {
        mine.push_back({tensor, first, cells});
      }
      done += cells;
    }
  }
  return shards;
}

std::size_t cells_of(std::span<const Shard> shards) {
  return cells_between(shards, 0, std::numeric_limits<std::size_t>::max());
}

std::size_t cells_between(std::span<const Shard> shards, std::size_t first, std::size_t last) {
  std::size_t cells = 0;
  for (const Shard& shard : shards) {
    if (shard.tensor >= first && shard.tensor < last) cells += shard.cells;
  }
  return cells;
}

}  // namespace weightcast
