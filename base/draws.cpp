#include "base/draws.h"

#include <numeric>
#include <utility>

#include "base/random.h"

namespace weightcast {

std::uint64_t drawn(std::uint64_t seed, std::uint64_t stream, std::uint64_t n) {
  return Random(Random(Random(seed).next() ^ stream).next() ^ n).next();
}

std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Random random(seed);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace weightcast
