#pragma once

#include <cstdint>
#include <filesystem>
#include <random>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast::bench {

/// Memory that a trainer hands over: filled by it, read by the origin.
class BenchMemory {
 public:
  /// Errors: kNoSpace, kIo.
  static Result<BenchMemory> make(std::uint64_t bytes);
  BenchMemory(BenchMemory&& other) noexcept;
  BenchMemory& operator=(BenchMemory&&) = delete;
  ~BenchMemory();
  [[nodiscard]] const FileRef& file() const { return file_; }
  [[nodiscard]] MutableBytes bytes() const { return bytes_; }

 private:
  BenchMemory(FileRef file, MutableBytes bytes) : file_(std::move(file)), bytes_(bytes) {}
  FileRef file_;
  MutableBytes bytes_;
};

/// BF16 tensors in a region, and their changes in another. Weights have a standard deviation of 0.02.
class BenchTrainer {
 public:
  /// `tensor_bytes` in `tensors` of equal size, of which a step changes `changed_share` of the cells. Errors:
  /// kInvalidArgument (less than an element per tensor), those of the memory.
  static Result<BenchTrainer> make(std::uint64_t tensor_bytes, std::size_t tensors, double changed_share);

  /// Of one tensor by the last step.
  struct Changed {
    std::vector<std::uint32_t> indices;  ///< ascending
    std::vector<std::uint16_t> values;
  };

  /// Chooses about the wanted share of the cells, and moves them by one up or down: changed() says to what. The tensors
  /// have it after apply(), which one thread does, with prefetches.
  void choose();
  void apply();
  /// Both, and writes the list of it.
  Status step();
  /// Whether a file has the tensors that the trainer has now. Errors: kCorrupt, those of reading it.
  [[nodiscard]] Status check_copy(FileSystem& files, const std::filesystem::path& path) const;

  [[nodiscard]] const std::vector<TensorInfo>& infos() const { return infos_; }
  [[nodiscard]] const std::vector<Changed>& changed() const { return changed_; }
  [[nodiscard]] const void* data(std::size_t tensor) const { return whole_.bytes().data() + offsets_[tensor]; }
  [[nodiscard]] const BenchMemory& whole() const { return whole_; }
  [[nodiscard]] const BenchMemory& changes() const { return changes_; }
  [[nodiscard]] std::uint64_t changes_bytes() const { return changes_bytes_; }

 private:
  BenchTrainer(BenchMemory whole, BenchMemory changes, std::vector<TensorInfo> infos,
               std::vector<std::uint64_t> offsets, double share)
      : whole_(std::move(whole)),
        changes_(std::move(changes)),
        infos_(std::move(infos)),
        offsets_(std::move(offsets)),
        share_(share) {}
  void fill();
  [[nodiscard]] std::uint16_t* cells_of(std::size_t tensor) const {
    return reinterpret_cast<std::uint16_t*>(whole_.bytes().data() + offsets_[tensor]);
  }

  BenchMemory whole_, changes_;
  const std::vector<TensorInfo> infos_;
  const std::vector<std::uint64_t> offsets_;
  const double share_;
  std::vector<Changed> changed_;
  std::uint64_t changes_bytes_ = 0;
  std::mt19937_64 random_{1};
};

}  // namespace weightcast::bench
