#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/digest/checksum.h"
#include "base/files/file_system.h"
#include "base/result.h"

namespace weightcast {

/// Changes bytes of a file where they are, which costs less than to read and to write them. The file is mapped, as long
/// as this lives; one that is simulated, or that the kernel cannot map so, is read and written. Only for files of our
/// own that nobody else has open while they change. Several threads may edit, each bytes of its own. After a kill the
/// file has what was changed so far.
class FileEditor {
 public:
  FileEditor(FileRef file, std::uint64_t size_bytes);
  ~FileEditor();
  FileEditor(const FileEditor&) = delete;
  FileEditor& operator=(const FileEditor&) = delete;

  [[nodiscard]] File& file() const { return *file_; }

  enum class Use : std::uint8_t { kRead, kChange };
  /// The bytes at `offset`, to be changed until commit(), or to be read, while others may read them, too. `scratch` is
  /// the caller's, and outlives them. Brings the pages into memory first, and makes them writable, so that a disk that
  /// fails is an error here, and no signal later. Errors: kIo, kNoSpace.
  [[nodiscard]] Result<MutableBytes> edit(std::uint64_t offset, std::size_t size, std::vector<std::byte>& scratch,
                                          Use use = Use::kChange);
  /// `bytes` are what edit() gave for that offset. Errors: those of the file.
  [[nodiscard]] Status commit(std::uint64_t offset, Bytes bytes);

 private:
  /// Of a file in memory: a piece of this size that was made writable stays so.
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{2} << 20;
  /// Takes MADV_POPULATE_READ or _WRITE.
  [[nodiscard]] Status bring_in(std::uint64_t begin, std::uint64_t end, int advice);

  const FileRef file_;
  const std::uint64_t size_bytes_;
  std::byte* mapped_ = nullptr;
  std::vector<std::atomic<bool>> writable_;  // by piece; empty of a file on a disk
};

}  // namespace weightcast
