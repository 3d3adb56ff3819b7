#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/digest/checksum.h"
#include "base/random.h"

namespace weightcast::sim {

/// The files of a snapshot, by name.
using SnapshotFiles = std::map<std::string, std::string>;

/// The digest of each file, by name.
using FileDigests = std::map<std::string, Checksum>;
[[nodiscard]] FileDigests digests_of(const SnapshotFiles& files);

/// BF16 weights as training leaves them: few exponents, and a step moves some of the mantissas.
class Weights {
 public:
  /// `bytes` in so many safetensors files.
  Weights(Random& random, std::uint64_t bytes, std::uint32_t files);

  void step(double changed_share);
  /// Other shapes.
  void resize(std::uint64_t bytes);

  [[nodiscard]] const std::vector<std::uint16_t>& cells() const { return cells_; }
  /// A file of changes (patch/changes/change_names.h) from `before`, which has as many cells. Some keep their value.
  [[nodiscard]] std::string changes_since(const std::vector<std::uint16_t>& before) const;

  /// Each file has two tensors. Several have an index and a configuration beside them, as Hugging Face has it.
  [[nodiscard]] SnapshotFiles files() const;

 private:
  [[nodiscard]] std::uint16_t cell();
  /// A safetensors file of the tensors a and b, each with the file's number.
  [[nodiscard]] std::string file(std::uint32_t number) const;

  /// The cells of tensor a or b of a file.
  [[nodiscard]] std::span<const std::uint16_t> tensor(std::uint32_t file, bool second) const;
  [[nodiscard]] std::uint64_t first_cell(std::uint32_t file) const { return cells_.size() * file / files_; }

  Random& random_;
  std::vector<std::uint16_t> cells_;
  const std::uint32_t files_;
};

}  // namespace weightcast::sim
