#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// An empty directory for one test, removed with what it holds.
class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "weightcast-test-XXXXXX").string();
    WC_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  /// A parent for those that are to lie in memory: a tmpfs that ./run test empties at its end.
  [[nodiscard]] static std::filesystem::path in_memory() {
    const char* given = std::getenv("WEIGHTCAST_TEST_MEMORY");
    return given != nullptr ? given : "/dev/shm";
  }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  /// Writes a file and returns its path.
  std::string write(std::string_view name, std::string_view bytes) const {
    std::ofstream out(file(name), std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    WC_CHECK(out.good());
    return file(name);
  }

 private:
  std::string path_;
};

}  // namespace weightcast
