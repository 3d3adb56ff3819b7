#include "transport/io/disk/io_run.h"

#include <fmt/format.h>

#include <cerrno>

namespace weightcast {
namespace {

Op op_of(IoRun::Kind kind) {
  switch (kind) {
    case IoRun::Kind::kRead: return Op::kRead;
    case IoRun::Kind::kWrite: return Op::kWrite;
    case IoRun::Kind::kSync: return Op::kSync;
  }
  return Op::kRead;
}

}  // namespace

void IoRun::add(iovec piece, Disk::Done done) {
  if (piece.iov_len > 0) pieces_.push_back(piece);
  bytes_ += piece.iov_len;
  end_ += piece.iov_len;
  dones_.push_back(std::move(done));
  ended_ = kind_ != Kind::kSync && bytes_ == 0;
}

void IoRun::handle_result(ssize_t result) {
  if (result == -EINTR || result == -EAGAIN) return;
  if (result < 0) {
    status_ = fail_errno(static_cast<int>(-result), op_of(kind_), fmt::format("{} at byte {}", file_->name(), offset_));
    ended_ = true;
    return;
  }
  if (kind_ == Kind::kSync) {
    ended_ = true;
    return;
  }
  if (result == 0) {
    // A read past the end; for a write no kernel should say this, and asking again might never end.
    status_ = kind_ == Kind::kRead ? fail(Errc::kCorrupt, Op::kRead,
                                          fmt::format("{} ends at byte {}, before its size", file_->name(), offset_))
                                   : fail_errno(EIO, Op::kWrite, fmt::format("{} at byte {}", file_->name(), offset_));
    ended_ = true;
    return;
  }
  auto moved = static_cast<std::size_t>(result);
  offset_ += moved;
  while (moved > 0) {
    iovec& piece = pieces_[first_piece_];
    if (moved < piece.iov_len) {
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + moved;
      piece.iov_len -= moved;
      break;
    }
    moved -= piece.iov_len;
    ++first_piece_;
  }
  ended_ = first_piece_ == pieces_.size();
}

void IoRun::run_callbacks() {
  for (Disk::Done& done : dones_) done(status_);
}

}  // namespace weightcast
