#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace weightcast::bench {

/// Reads a figure of the kernel, which stands in KiB behind `key` ("VmRSS:") in a file such as /proc/self/status.
/// Returns 0 if there is none.
[[nodiscard]] inline std::uint64_t proc_bytes(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == key && file >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace weightcast::bench
