#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// In place: the file stays the one that others have open.
inline void overwrite(const std::filesystem::path& path, std::uint64_t at, std::string_view bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  WC_CHECK(file.good());
}

/// Flips a bit of that byte, or flips it back.
inline void flip_bit(const std::filesystem::path& path, std::uint64_t at) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char flipped = static_cast<char>(file.get() ^ 1);
  WC_CHECK(file.good());
  overwrite(path, at, {&flipped, 1});
}

}  // namespace weightcast
