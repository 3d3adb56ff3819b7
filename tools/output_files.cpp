#include "tools/output_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace weightcast {

namespace fs = std::filesystem;

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!finished_) ::unlink(temporary_.c_str());
}

Status OutputFile::open() {
  fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) return fail_errno(errno, Op::kOpen, temporary_);
  return {};
}

Status OutputFile::write_at(std::uint64_t offset, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, Op::kWrite, temporary_);
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status OutputFile::read_at(std::uint64_t offset, MutableBytes bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, Op::kRead, temporary_);
    if (n == 0) {
      return fail(Errc::kCorrupt, Op::kRead,
                  fmt::format("{}: another program truncated it while it was written; run this again", temporary_));
    }
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status OutputFile::finish(std::uint64_t size_bytes) {
  if (::ftruncate(fd_, static_cast<off_t>(size_bytes)) != 0) return fail_errno(errno, Op::kWrite, temporary_);
  if (::fsync(fd_) != 0) return fail_errno(errno, Op::kSync, temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return fail_errno(errno, Op::kRename, path_);
  finished_ = true;
  return {};
}

Status OutputSnapshot::open(const std::string& path) {
  const bool single = table_.files().size() == 1;
  std::error_code error;
  if (!single) fs::create_directories(path, error);
  if (error) return fail(Errc::kIo, Op::kOpen, fmt::format("{}: {}", path, error.message()));
  for (const SnapshotFile& file : table_.files()) {
    files_.push_back(std::make_unique<OutputFile>(single ? path : (fs::path(path) / file.name).string()));
    WC_TRY(files_.back()->open());
  }
  return {};
}

Status OutputSnapshot::finish() {
  for (std::size_t i = 0; i < files_.size(); ++i) WC_TRY(files_[i]->finish(table_.files()[i].size_bytes));
  return {};
}

Status OutputSnapshot::write(std::uint64_t offset, Bytes bytes) {
  for (const FilePiece& piece : table_.pieces(offset, bytes.size())) {
    WC_TRY(files_[piece.file]->write_at(piece.offset_bytes, bytes.first(piece.size_bytes)));
    bytes = bytes.subspan(piece.size_bytes);
  }
  return {};
}

Status OutputSnapshot::read(std::uint64_t offset, MutableBytes bytes) const {
  for (const FilePiece& piece : table_.pieces(offset, bytes.size())) {
    WC_TRY(files_[piece.file]->read_at(piece.offset_bytes, bytes.first(piece.size_bytes)));
    bytes = bytes.subspan(piece.size_bytes);
  }
  return {};
}

}  // namespace weightcast
