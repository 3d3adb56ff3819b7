#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "base/files/file_system.h"
#include "patch/codec/stream.h"
#include "patch/snapshot/file_table.h"

namespace weightcast {

/// The files of a snapshot that is being written, under other names until finish().
class OutputSnapshot final : public ByteTarget {
 public:
  OutputSnapshot(FileSystem& files, FileTable table) : files_(files), table_(std::move(table)) {}
  ~OutputSnapshot() override;

  /// A snapshot of one file is written to `path` itself, one of several into the directory `path`.
  Status open(const std::filesystem::path& path);
  Status finish();

  std::uint64_t size_bytes() const override { return table_.size_bytes(); }
  Status write(std::uint64_t offset, Bytes bytes) override;

 private:
  struct Output {
    std::filesystem::path path, temporary;
    std::unique_ptr<File> file;  ///< null once it has its name
  };

  FileSystem& files_;
  const FileTable table_;
  std::vector<Output> outputs_;
};

}  // namespace weightcast
