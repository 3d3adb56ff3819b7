#include "base/files/memory_file.h"

#include <algorithm>
#include <cstring>

namespace weightcast {

Error ReadOnlyFile::refuse() { return fail(Errc::kUnsupported, Op::kWrite, "a file in memory that is only read"); }

MemoryFile::MemoryFile(std::uint64_t size_bytes) : bytes_(new std::byte[size_bytes]), size_bytes_(size_bytes) {}

Result<std::size_t> MemoryFile::read_at(std::uint64_t offset, MutableBytes into) {
  if (offset >= size_bytes_) return 0;
  const std::size_t size = std::min<std::uint64_t>(into.size(), size_bytes_ - offset);
  std::memcpy(into.data(), bytes_.get() + offset, size);
  return size;
}

Result<FileInfo> MemoryFile::info() {
  FileInfo info;
  info.kind = FileInfo::Kind::kFile;
  info.size_bytes = size_bytes_;
  return info;
}

}  // namespace weightcast
