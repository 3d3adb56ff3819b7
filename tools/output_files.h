#pragma once

#include <memory>
#include <string>
#include <vector>

#include "patch/codec/stream.h"
#include "patch/snapshot/file_table.h"

namespace weightcast {

/// A file that takes its name when it is complete.
class OutputFile {
 public:
  explicit OutputFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {}
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status open();
  Status write_at(std::uint64_t offset, Bytes bytes);
  /// Of what was written.
  Status read_at(std::uint64_t offset, MutableBytes bytes) const;
  Status finish(std::uint64_t size_bytes);

 private:
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  bool finished_ = false;
};

/// The files of a snapshot that is being written.
class OutputSnapshot final : public ByteTarget {
 public:
  explicit OutputSnapshot(FileTable table) : table_(std::move(table)) {}

  /// A snapshot of one file is written to `path` itself, one of several into the directory `path`.
  Status open(const std::string& path);
  Status finish();

  std::uint64_t size_bytes() const override { return table_.size_bytes(); }
  Status write(std::uint64_t offset, Bytes bytes) override;
  /// Of what was written.
  Status read(std::uint64_t offset, MutableBytes bytes) const;

 private:
  FileTable table_;
  std::vector<std::unique_ptr<OutputFile>> files_;
};

}  // namespace weightcast
