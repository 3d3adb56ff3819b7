#include "sim/whole/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace weightcast::sim {

FileDigests digests_of(const SnapshotFiles& files) {
  FileDigests digests;
  for (const auto& [name, content] : files) digests[name] = digest_of(std::as_bytes(std::span(content)));
  return digests;
}

Weights::Weights(Random& random, std::uint64_t bytes, std::uint32_t files) : random_(random), files_(files) {
  resize(bytes);
}

std::uint16_t Weights::cell() {
  const auto exponent = static_cast<std::uint16_t>(0x78 + std::min<std::uint64_t>(random_.below(7), 4));
  return static_cast<std::uint16_t>((random_.below(2) << 15) | (exponent << 7) | random_.below(128));
}

void Weights::step(double changed_share) {
  const auto changes = static_cast<std::uint64_t>(changed_share * double(cells_.size()));
  for (std::uint64_t i = 0; i < changes; ++i) {
    cells_[random_.below(cells_.size())] ^= static_cast<std::uint16_t>(1 + random_.below(7));
  }
}

void Weights::resize(std::uint64_t bytes) {
  const std::size_t before = cells_.size();
  cells_.resize(bytes / 2);
  for (std::size_t i = before; i < cells_.size(); ++i) cells_[i] = cell();
}

SnapshotFiles Weights::files() const {
  if (files_ == 1) return {{"model.safetensors", file(0, cells_.size(), 0)}};
  SnapshotFiles files;
  std::string map;
  for (std::uint32_t i = 0; i < files_; ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files_);
    files[name] = file(cells_.size() * i / files_, cells_.size() * (i + 1) / files_, i);
    map += fmt::format(R"({}"a{}":"{}","b{}":"{}")", i == 0 ? "" : ",", i, name, i, name);
  }
  files["model.safetensors.index.json"] = fmt::format(R"({{"weight_map":{{{}}}}})", map);
  files["config.json"] = R"({"architectures":["Simulated"]})";
  return files;
}

std::string Weights::file(std::uint64_t first, std::uint64_t last, std::uint32_t number) const {
  const std::uint64_t all = (last - first) * 2;
  const std::uint64_t half = all / 4 * 2;
  std::string header = fmt::format(
      R"({{"a{}":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}},"b{}":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}}}})",
      number, half / 2, half, number, (all - half) / 2, half, all);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t header_bytes = header.size();
  std::string out(sizeof header_bytes, '\0');
  std::memcpy(out.data(), &header_bytes, sizeof header_bytes);
  out += header;
  out.append(reinterpret_cast<const char*>(cells_.data() + first), all);
  return out;
}

}  // namespace weightcast::sim
