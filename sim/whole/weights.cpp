#include "sim/whole/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "patch/changes/change_names.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast::sim {
namespace {

std::string tensor_name(std::uint32_t file, bool second) { return fmt::format("{}{}", second ? "b" : "a", file); }

}  // namespace

FileDigests digests_of(const SnapshotFiles& files) {
  FileDigests digests;
  for (const auto& [name, content] : files) digests[name] = checksum_of(std::as_bytes(std::span(content)));
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
  if (files_ == 1) return {{"model.safetensors", file(0)}};
  SnapshotFiles files;
  std::string map;
  for (std::uint32_t i = 0; i < files_; ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files_);
    files[name] = file(i);
    map += fmt::format(R"({}"a{}":"{}","b{}":"{}")", i == 0 ? "" : ",", i, name, i, name);
  }
  files["model.safetensors.index.json"] = fmt::format(R"({{"weight_map":{{{}}}}})", map);
  files["config.json"] = R"({"architectures":["Simulated"]})";
  return files;
}

std::span<const std::uint16_t> Weights::tensor(std::uint32_t file, bool second) const {
  const auto cells = std::span(cells_).subspan(first_cell(file), first_cell(file + 1) - first_cell(file));
  return second ? cells.subspan(cells.size() / 2) : cells.first(cells.size() / 2);
}

std::string Weights::changes_since(const std::vector<std::uint16_t>& before) const {
  std::vector<TensorInfo> infos;
  std::vector<std::string> bytes;
  for (std::uint32_t i = 0; i < 2 * files_; ++i) {
    const std::span<const std::uint16_t> now = tensor(i / 2, i % 2 == 1);
    const std::uint16_t* const old_cells = before.data() + (now.data() - cells_.data());
    std::vector<std::uint32_t> indices;
    std::vector<std::uint16_t> values;
    for (std::size_t at = 0; at < now.size(); ++at) {
      if (now[at] == old_cells[at] && at % 1000 != 7) continue;
      indices.push_back(static_cast<std::uint32_t>(at));
      values.push_back(now[at]);
    }
    const std::string name = tensor_name(i / 2, i % 2 == 1);
    const auto add = [&](std::string_view prefix, const char* dtype, const auto& from) {
      const Bytes cells = std::as_bytes(std::span(from));
      infos.push_back({std::string(prefix) + name, dtype, {from.size()}, 0, cells.size()});
      bytes.emplace_back(reinterpret_cast<const char*>(cells.data()), cells.size());
    };
    add(kIndicesPrefix, "U32", indices);
    add(kValuesPrefix, "BF16", values);
  }
  const auto layout = lay_out_safetensors(infos);
  WC_CHECK(layout.has_value());
  std::string out = layout->header;
  for (const std::size_t i : layout->order) out += bytes[i];
  return out;
}

std::string Weights::file(std::uint32_t number) const {
  std::vector<TensorInfo> infos;
  for (const bool second : {false, true}) {
    const std::span<const std::uint16_t> cells = tensor(number, second);
    infos.push_back({tensor_name(number, second), "BF16", {cells.size()}, 0, cells.size_bytes()});
  }
  const auto layout = lay_out_safetensors(infos);
  WC_CHECK(layout.has_value());
  std::string out = layout->header;
  const std::size_t first = first_cell(number), cells = first_cell(number + 1) - first;
  return out.append(reinterpret_cast<const char*>(cells_.data() + first), 2 * cells);
}

}  // namespace weightcast::sim
