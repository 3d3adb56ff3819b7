#pragma once

#include <filesystem>

#include "archive/object_store.h"
#include "base/files/file_system.h"

namespace weightcast {

/// Objects as files of a directory, which may be a network's.
class DirectoryObjects final : public ObjectStore {
 public:
  DirectoryObjects(FileSystem& files, std::filesystem::path directory)
      : files_(files), directory_(std::move(directory)) {}

  [[nodiscard]] std::string place_of(const std::string& name) const override { return (directory_ / name).native(); }
  [[nodiscard]] Result<std::optional<std::uint64_t>> size_of(const std::string& name) override;
  [[nodiscard]] Result<std::string> read(const std::string& name, std::uint64_t bytes_max) override;
  [[nodiscard]] Status read_range(const std::string& name, std::uint64_t object_bytes, std::uint64_t offset,
                                  std::uint64_t size, const Sink& sink) override;
  /// Makes the directory if it is missing.
  [[nodiscard]] Status write(const std::string& name, Bytes bytes) override;

 private:
  FileSystem& files_;
  const std::filesystem::path directory_;
};

}  // namespace weightcast
