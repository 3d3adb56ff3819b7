#include "transport/io/store/files/file_editor.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>

namespace weightcast {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

}  // namespace

FileEditor::FileEditor(FileRef file, std::uint64_t size_bytes) : file_(std::move(file)), size_bytes_(size_bytes) {
#ifdef MADV_POPULATE_WRITE
  if (file_->fd() < 0 || size_bytes == 0) return;
  void* const mapped = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_->fd(), 0);
  if (mapped == MAP_FAILED) return;
  // Linux 5.14 knows the advice. Without it nobody could say beforehand whether a page can be written.
  if (::madvise(mapped, 0, MADV_POPULATE_WRITE) != 0) {
    ::munmap(mapped, size_bytes);
    return;
  }
  mapped_ = static_cast<std::byte*>(mapped);
  // The kernel takes nothing of such a file away, and never asks again before a write: to ask it each time would take a
  // quarter of a step.
  struct statfs about {};
  const bool in_memory = ::fstatfs(file_->fd(), &about) == 0 && about.f_type == TMPFS_MAGIC;
  if (in_memory) writable_ = std::vector<std::atomic<bool>>((size_bytes + kPieceBytes - 1) / kPieceBytes);
#endif
}

Status FileEditor::bring_in(std::uint64_t begin, std::uint64_t end, int advice) {
  begin = begin / kPageBytes * kPageBytes;
  while (::madvise(mapped_ + begin, end - begin, advice) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    // EFAULT: reading the page, or finding room for it, has failed.
    return fail_errno(errno == EFAULT ? EIO : errno, Op::kOpen, std::string(file_->name()));
  }
  return {};
}

FileEditor::~FileEditor() {
  if (mapped_ != nullptr) ::munmap(mapped_, size_bytes_);
}

Result<MutableBytes> FileEditor::edit(std::uint64_t offset, std::size_t size, std::vector<std::byte>& scratch,
                                      Use use) {
  WC_CHECK(offset + size <= size_bytes_);
  if (mapped_ == nullptr) {
    scratch.resize(size);
    WC_TRY(read_fully(*file_, offset, scratch, file_->name()));
    return MutableBytes(scratch);
  }
#ifdef MADV_POPULATE_WRITE
  const std::uint64_t end = offset + size;
  if (use == Use::kRead || writable_.empty()) {
    WC_TRY(bring_in(offset, end, use == Use::kRead ? MADV_POPULATE_READ : MADV_POPULATE_WRITE));
    return MutableBytes(mapped_ + offset, size);
  }
  for (std::uint64_t piece = offset / kPieceBytes; piece * kPieceBytes < end; ++piece) {
    if (writable_[piece].load(std::memory_order_relaxed)) continue;
    WC_TRY(bring_in(piece * kPieceBytes, std::min((piece + 1) * kPieceBytes, size_bytes_), MADV_POPULATE_WRITE));
    writable_[piece].store(true, std::memory_order_relaxed);
  }
#endif
  return MutableBytes(mapped_ + offset, size);
}

Status FileEditor::commit(std::uint64_t offset, Bytes bytes) {
  if (mapped_ != nullptr) return {};
  return write_fully(*file_, offset, bytes, file_->name());
}

}  // namespace weightcast
