#include "transport/io/store/file_editor.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>

namespace weightcast {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

}  // namespace

Result<std::unique_ptr<FileEditor>> FileEditor::open(FileRef file, std::uint64_t size_bytes) {
  std::unique_ptr<FileEditor> editor(new FileEditor(std::move(file), size_bytes));
  if (editor->file_->fd() < 0 || size_bytes == 0) return editor;
#ifdef MADV_POPULATE_WRITE
  void* const mapped = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, editor->file_->fd(), 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, Op::kOpen, std::string(editor->file_->name()));
  editor->mapped_ = static_cast<std::byte*>(mapped);
  // Linux 5.14 knows the advice.
  if (::madvise(mapped, 0, MADV_POPULATE_WRITE) == 0) return editor;
#endif
  return fail(Errc::kUnsupported, Op::kOpen, "this kernel cannot make pages writable ahead of time");
}

FileEditor::FileEditor(FileRef file, std::uint64_t size_bytes) : file_(std::move(file)), size_bytes_(size_bytes) {
  // The kernel takes nothing of such a file away, and never asks again before a write: to ask it each time would take a
  // quarter of a step.
  struct statfs about {};
  const bool in_memory = file_->fd() >= 0 && ::fstatfs(file_->fd(), &about) == 0 && about.f_type == TMPFS_MAGIC;
  if (in_memory) writable_ = std::vector<std::atomic<bool>>((size_bytes + kPieceBytes - 1) / kPieceBytes);
}

Status FileEditor::make_writable(std::uint64_t begin, std::uint64_t end) {
#ifdef MADV_POPULATE_WRITE
  begin = begin / kPageBytes * kPageBytes;
  while (::madvise(mapped_ + begin, end - begin, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    // EFAULT: reading the page, or finding room for it, has failed.
    return fail_errno(errno == EFAULT ? EIO : errno, Op::kWrite, std::string(file_->name()));
  }
#endif
  return {};
}

FileEditor::~FileEditor() {
  if (mapped_ != nullptr) ::munmap(mapped_, size_bytes_);
}

Result<MutableBytes> FileEditor::edit(std::uint64_t offset, std::size_t size, std::vector<std::byte>& scratch) {
  WC_CHECK(offset + size <= size_bytes_);
  if (mapped_ == nullptr) {
    scratch.resize(size);
    WC_TRY(read_fully(*file_, offset, scratch, file_->name()));
    return MutableBytes(scratch);
  }
  const std::uint64_t end = offset + size;
  if (writable_.empty()) {
    WC_TRY(make_writable(offset, end));
    return MutableBytes(mapped_ + offset, size);
  }
  for (std::uint64_t piece = offset / kPieceBytes; piece * kPieceBytes < end; ++piece) {
    if (writable_[piece].load(std::memory_order_relaxed)) continue;
    WC_TRY(make_writable(piece * kPieceBytes, std::min((piece + 1) * kPieceBytes, size_bytes_)));
    writable_[piece].store(true, std::memory_order_relaxed);
  }
  return MutableBytes(mapped_ + offset, size);
}

Status FileEditor::commit(std::uint64_t offset, Bytes bytes) {
  if (mapped_ != nullptr) return {};
  return write_fully(*file_, offset, bytes, file_->name());
}

}  // namespace weightcast
