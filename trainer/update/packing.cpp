#include "trainer/update/packing.h"

namespace weightcast {

std::vector<std::vector<std::size_t>> divide(std::span<const std::size_t> order, std::size_t parts) {
  std::vector<std::vector<std::size_t>> divided;
  std::size_t begin = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t length = order.size() / parts + (part < order.size() % parts ? 1 : 0);
    const auto run = order.subspan(begin, length);
    divided.emplace_back(run.begin(), run.end());
    begin += length;
  }
  return divided;
}

std::vector<std::vector<std::size_t>> pack(std::span<const std::size_t> members, std::span<const std::size_t> lengths,
                                           std::uint64_t tokens_max) {
  std::vector<std::vector<std::size_t>> groups;
  std::uint64_t tokens = 0;
  for (const std::size_t member : members) {
    if (groups.empty() || tokens + lengths[member] > tokens_max) {
      groups.emplace_back();
      tokens = 0;
    }
    groups.back().push_back(member);
    tokens += lengths[member];
  }
  return groups;
}

}  // namespace weightcast
