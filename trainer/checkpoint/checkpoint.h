#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "patch/snapshot/tensor.h"

namespace weightcast {

/// A tensor with a copy of its bytes.
struct StoredTensor {
  TensorInfo info;  ///< offset_bytes means nothing
  std::vector<std::byte> bytes;
};

/// A learner's state after `step` training steps: the files of one directory, in memory. It owns all of its bytes, so
/// that it can be written while training goes on.
struct Checkpoint {
  std::uint64_t step = 0;
  std::map<std::string, std::vector<StoredTensor>> tensors;  ///< by name of a safetensors file
  std::map<std::string, std::string> texts;                  ///< by name of a file
};

/// Writes `directory`/checkpoint-STEP: beside it first, synced, then renamed. Then deletes all but the newest `kept`.
///
///   checkpoint-STEP/           what other tools read: the model's files, or an adapter's, and no other *.safetensors
///   checkpoint-STEP/learner/   everything else
///   checkpoint-STEP/base/      beside an adapter, the model that it is for, if the checkpoint has that
///
/// A kill or a power cut at any moment leaves the older ones, and the new one whole or not at all. One of the same step
/// stays until the new one is whole and synced, and gives it its name then.
/// Errors: kNoSpace and others of the disk; then the older ones are still there.
[[nodiscard]] Status write_checkpoint(FileSystem& files, const std::filesystem::path& directory,
                                      const Checkpoint& checkpoint, std::uint64_t kept);

/// The newest checkpoint that is undamaged; absent if there is none. Each damaged one on the way adds a line to
/// `warnings`. Clears what a kill has left half-made. Takes checkpoints of releases that had all files in one
/// directory. Errors: those of the disk; kCorrupt if there are checkpoints, and all of them are damaged.
[[nodiscard]] Result<std::optional<Checkpoint>> read_newest_checkpoint(FileSystem& files,
                                                                       const std::filesystem::path& directory,
                                                                       std::vector<std::string>& warnings);

/// Writes checkpoints on a thread of its own, one at a time, so that training waits for the copy alone.
class CheckpointWriter {
 public:
  CheckpointWriter(FileSystem& files, std::filesystem::path directory, std::uint64_t kept)
      : files_(files), directory_(std::move(directory)), kept_(kept) {}
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Whether one is being written.
  [[nodiscard]] bool busy() const { return thread_.joinable() && !done_; }
  /// Waits for the one that is being written, and starts. Returns how that earlier one ended.
  Status begin(Checkpoint checkpoint);
  /// Waits for the one that is being written, and returns how it ended. Nothing to wait for: no error.
  Status finish();

  /// The checkpoint of `step` is on the disk: the run goes on from it.
  void handle_resumed(std::uint64_t step) { written_step_ = step; }
  /// The step of the last one that finish() saw whole, or that the run went on from.
  [[nodiscard]] std::optional<std::uint64_t> written_step() const { return written_step_; }

 private:
  FileSystem& files_;
  const std::filesystem::path directory_;
  const std::uint64_t kept_;
  std::thread thread_;
  std::atomic<bool> done_ = false;
  Status outcome_;
  std::uint64_t step_ = 0;  // of the one that is being written
  std::optional<std::uint64_t> written_step_;
};

}  // namespace weightcast
