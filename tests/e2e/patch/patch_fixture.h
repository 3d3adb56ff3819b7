#pragma once

#include <fmt/format.h>
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/digest/checksum.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/patch/safetensors_bytes.h"

namespace weightcast {

/// A model of one BF16 tensor that changes a little with every step, as training changes one.
class Model {
 public:
  Model(std::string path, std::size_t cells, unsigned seed = 1) : path_(std::move(path)), random_(seed), cells_(cells) {
    for (std::uint16_t& cell : cells_) cell = static_cast<std::uint16_t>(0x3c00 + (random_() & 0x80ff));
    save();
  }

  /// Moves about one cell in a hundred to a neighbouring number.
  const std::string& step() {
    for (std::size_t i = random_() % 200; i < cells_.size(); i += 1 + random_() % 200) ++cells_[i];
    save();
    return path_;
  }
  /// Moves about one cell in five: more than the origin looks for by comparing with the version before.
  const std::string& move_many() {
    for (std::size_t i = random_() % 9; i < cells_.size(); i += 1 + random_() % 9) ++cells_[i];
    save();
    return path_;
  }
  /// Moves nine cells of ten to a neighbouring number, up or down.
  const std::string& move_most() {
    for (std::uint16_t& cell : cells_) {
      const auto draw = random_() % 20;
      if (draw < 18) cell = static_cast<std::uint16_t>(cell + (draw % 2 == 0 ? 1 : -1));
    }
    save();
    return path_;
  }
  /// Moves all of them somewhere.
  const std::string& replace() {
    for (std::uint16_t& cell : cells_) cell = static_cast<std::uint16_t>(0x3c00 + (random_() & 0x80ff));
    save();
    return path_;
  }
  std::uint16_t& cell(std::size_t i) { return cells_[i]; }
  void save() const {
    const std::string header = fmt::format(R"({{"weight":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}}}})",
                                           cells_.size(), 2 * cells_.size());
    const std::string_view data(reinterpret_cast<const char*>(cells_.data()), 2 * cells_.size());
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << safetensors_bytes(header, data);
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Checksum digest() const { return checksum_of(as_bytes(read_file(path_))); }
  [[nodiscard]] std::uint64_t file_bytes() const { return std::filesystem::file_size(path_); }

 private:
  std::string path_;
  std::mt19937 random_;
  std::vector<std::uint16_t> cells_;
};

struct PatchTest : testing::Test {
  Cluster cluster;
  Model model{cluster.temp().file("model.safetensors"), 4'000'000};

  nlohmann::json publish(std::uint64_t version, const Cluster::Flags& flags = {"--wait", "1", "--timeout", "120"}) {
    const Ran ran = cluster.publish(model.path(), version, flags);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.status == 0 ? nlohmann::json::parse(ran.out) : nlohmann::json();
  }
  /// Publishes versions 1 to `last` to that worker and to "b", all but the first while it is away, and waits until it
  /// has caught up. Returns the bytes of the payloads that it missed.
  std::uint64_t publish_while_away(const std::string& name, std::uint64_t last) {
    cluster.start_worker(name);
    cluster.start_worker("b");
    publish(1);
    EXPECT_EQ(cluster.end(name, SIGTERM), 0);
    std::uint64_t missed_bytes = 0;
    for (std::uint64_t version = 2; version <= last; ++version) {
      model.step();
      missed_bytes += publish(version).at("payload_bytes").get<std::uint64_t>();
    }
    cluster.restart(name);
    EXPECT_TRUE(cluster.gets(name, last, model.path()));
    return missed_bytes;
  }
  std::uint64_t received(const std::string& name) {
    return cluster.self(name).at("bytes_received").get<std::uint64_t>();
  }
};

}  // namespace weightcast
