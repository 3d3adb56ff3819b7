#include "sim/whole/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace weightcast::sim {

Weights::Weights(Random& random, std::uint64_t bytes) : random_(random), cells_(bytes / 2) {
  for (std::uint16_t& cell : cells_) {
    const auto exponent = static_cast<std::uint16_t>(0x78 + std::min<std::uint64_t>(random_.below(7), 4));
    cell = static_cast<std::uint16_t>((random_.below(2) << 15) | (exponent << 7) | random_.below(128));
  }
}

void Weights::step(double changed_share) {
  const auto changes = static_cast<std::uint64_t>(changed_share * double(cells_.size()));
  for (std::uint64_t i = 0; i < changes; ++i) {
    cells_[random_.below(cells_.size())] ^= static_cast<std::uint16_t>(1 + random_.below(7));
  }
}

std::string Weights::file() const {
  const std::uint64_t half = cells_.size() / 2 * 2;
  const std::uint64_t all = cells_.size() * 2;
  std::string header = fmt::format(
      R"({{"a":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}},"b":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}}}})",
      half / 2, half, (all - half) / 2, half, all);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t header_bytes = header.size();
  std::string out(sizeof header_bytes, '\0');
  std::memcpy(out.data(), &header_bytes, sizeof header_bytes);
  out += header;
  out.append(reinterpret_cast<const char*>(cells_.data()), all);
  return out;
}

}  // namespace weightcast::sim
