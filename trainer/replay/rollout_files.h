#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "trainer/replay/rollout_source.h"

namespace weightcast {

/// Rollouts from JSONL files of trajectories, one file after the other. A line that cannot be read, and a rollout that
/// the buffer refuses, are counted and skipped.
class RolloutFiles final : public RolloutSource {
 public:
  /// `refused` is told of each line: "FILE line 7: why".
  RolloutFiles(std::vector<std::string> files, std::function<void(std::string)> refused)
      : files_(std::move(files)), refused_(std::move(refused)) {}

  /// Reads one line. Errors: kNotFound, kIo (a file).
  Result<bool> fill(Instant now, SharedReplayBuffer& buffer) override;
  std::string save() const override;
  /// Errors besides: kInvalidArgument (the file that the state was in is no longer at its place in the list).
  Status restore(std::string_view state) override;

  /// Lines that are no trajectory. Rollouts that the buffer refused are in its own statistics.
  std::uint64_t malformed() const override { return malformed_; }

 private:
  const std::vector<std::string> files_;
  const std::function<void(std::string)> refused_;
  std::ifstream in_;  // of files_[file_], if it is open
  std::size_t file_ = 0;
  std::uint64_t line_ = 0;          // lines of that file that were read
  std::uint64_t offset_bytes_ = 0;  // where the next one begins
  std::uint64_t malformed_ = 0;
};

}  // namespace weightcast
