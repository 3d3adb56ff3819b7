#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/digest/checksum.h"
#include "base/files/file_system.h"
#include "base/units.h"
#include "transport/io/disk/disk.h"

namespace weightcast {

/// Operations on one file that go to the kernel as one: a read, a sync, or writes without a gap between them. Tracks
/// what is left when the kernel does less than asked. Pure.
class IoRun {
 public:
  enum class Kind { kRead, kWrite, kSync };

  static constexpr std::size_t kBytesMax = kWriteBytes;  ///< past this a run takes no more
  static constexpr std::size_t kPiecesMax = 128;         ///< far below IOV_MAX

  IoRun(Kind kind, FileRef file, std::uint64_t offset)
      : kind_(kind), file_(std::move(file)), offset_(offset), end_(offset) {}

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] int fd() const { return file_->fd(); }
  [[nodiscard]] bool full() const { return bytes_ >= kBytesMax || dones_.size() >= kPiecesMax; }

  /// Whether a write of `file` at `offset` continues this one.
  [[nodiscard]] bool continues(const File& file, std::uint64_t offset) const {
    return kind_ == Kind::kWrite && &file == file_.get() && offset == end_ && !full();
  }
  void add(iovec piece, Disk::Done done);

  /// What is left to ask the kernel for. A read or write without bytes has ended from the start.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  [[nodiscard]] std::span<const iovec> pieces() const { return std::span(pieces_).subspan(first_piece_); }
  [[nodiscard]] bool ended() const { return ended_; }

  /// Takes the kernel's answer: bytes moved, or -errno. Unless the run has ended(), the caller asks again.
  void handle_result(ssize_t result);

  /// Calls all callbacks. Once, last.
  void run_callbacks();

 private:
  Kind kind_;
  FileRef file_;
  std::uint64_t offset_;
  std::uint64_t end_;
  std::size_t bytes_ = 0;
  std::size_t first_piece_ = 0;
  bool ended_ = false;
  Status status_;
  std::vector<iovec> pieces_;
  std::vector<Disk::Done> dones_;
};

}  // namespace weightcast
