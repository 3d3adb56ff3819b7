#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"

namespace weightcast {

/// The figures of one training step, by the field's names: "actor/pg_loss". Not finite: null in the file.
using Metrics = std::map<std::string, double, std::less<>>;

/// Sets NAME/mean, NAME/max and NAME/min. Nothing without values.
void set_summary(Metrics& metrics, const std::string& name, std::span<const double> values);

/// The value below which a share of `quantile` of `values` lies, by rank; NaN without values.
[[nodiscard]] double quantile_of(std::vector<double> values, double quantile);

/// metrics.jsonl: one object per line and training step. Invariant: size() ends at a whole line.
class MetricsFile {
 public:
  /// Opens the file and drops all behind `bytes_kept`, which a checkpoint recorded: the steps behind it come again. A
  /// file that is shorter keeps its whole lines.
  [[nodiscard]] static Result<MetricsFile> open(FileSystem& files, const std::filesystem::path& path,
                                                std::uint64_t bytes_kept);

  /// Errors: those of the disk. What was written in part is overwritten by the next line.
  [[nodiscard]] Status append(const Metrics& metrics);
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  MetricsFile(std::unique_ptr<File> file, std::uint64_t size) : file_(std::move(file)), size_(size) {}

  std::unique_ptr<File> file_;
  std::uint64_t size_ = 0;
};

/// Reads the whole lines of metrics.jsonl; null is NaN. A last line without its end is left out, as a run may be
/// writing it. Errors: kCorrupt, with the line's number; those of the disk.
[[nodiscard]] Result<std::vector<Metrics>> read_metrics(FileSystem& files, const std::filesystem::path& path);

}  // namespace weightcast
