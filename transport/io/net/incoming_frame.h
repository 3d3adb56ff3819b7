#pragma once

#include <sys/uio.h>

#include <array>
#include <optional>
#include <span>
#include <string>

#include "base/digest/content_digest.h"
#include "proto/frame.h"
#include "transport/io/buffer.h"
#include "transport/io/net/frame_connection.h"

namespace weightcast {

/// The frame that is arriving on a connection: first its header, then its body, which is read straight into its final
/// place and hashed if it is a chunk below `hashed_apart_bytes_min`. A message's memory grows with the bytes that have
/// arrived, not with the length in the header. A chunk's buffer has its full length at once, but the kernel backs only
/// the pages that were written. The caller reads into space(), reports bytes with take(), and takes each frame when it
/// is complete.
class IncomingFrame {
 public:
  /// Chunks take their memory from `buffers`, which outlives this object. Those of `hashed_apart_bytes_min` and more
  /// are not hashed here.
  explicit IncomingFrame(BufferPool& buffers, std::size_t hashed_apart_bytes_min = SIZE_MAX)
      : buffers_(buffers), hashed_apart_bytes_min_(hashed_apart_bytes_min) {}

  void set_limits(const ReceiveLimits& limits) { limits_ = limits; }

  /// Whether a frame has begun to arrive.
  [[nodiscard]] bool begun() const { return header_.has_value() || header_have_bytes_ > 0; }
  [[nodiscard]] bool complete() const { return header_ && body_have_bytes_ == header_->body_bytes; }
  /// Bytes that the frame still lacks. 0 while its header is incomplete.
  [[nodiscard]] std::size_t body_bytes_left() const { return header_ ? header_->body_bytes - body_have_bytes_ : 0; }

  /// Where the next bytes go, at most `bytes_max`: the rest of this frame and the header of the next, so that one
  /// system call per chunk is enough. Valid until the next call of a member.
  [[nodiscard]] std::span<iovec> space(std::size_t bytes_max);

  /// Takes `bytes` that were read into space(), at most to the end of the frame. Returns how many are left over.
  /// Errors: those of decode_frame_header(); kTooLarge (above the limits), kNotAllowed (chunks are not accepted here).
  [[nodiscard]] Result<std::size_t> take(std::size_t bytes);

  /// After an error of take(): what came is no frame, but the beginning of an encrypted connection.
  [[nodiscard]] bool peer_encrypts() const { return peer_encrypts_; }

  /// Whether the complete frame is a chunk. If so, call take_chunk(), else take_control().
  [[nodiscard]] bool is_chunk() const { return header_->type == FrameType::kChunk; }
  /// Whether the chunk's digest is made here.
  [[nodiscard]] bool hashes_chunk() const { return header_->body_bytes < hashed_apart_bytes_min_; }
  [[nodiscard]] ReceivedChunk take_chunk();
  [[nodiscard]] std::string take_control();

 private:
  [[nodiscard]] MutableBytes body();
  [[nodiscard]] Status check_limits() const;
  [[nodiscard]] Status begin_body();
  void end();

  BufferPool& buffers_;
  const std::size_t hashed_apart_bytes_min_;
  ReceiveLimits limits_;
  std::optional<FrameHeader> header_;
  std::string text_;
  BufferRef buffer_;
  ContentDigestStream digest_;
  std::size_t body_have_bytes_ = 0;
  FrameHeaderBytes next_header_{};
  std::size_t header_have_bytes_ = 0;
  bool peer_encrypts_ = false;
  std::array<iovec, 2> pieces_{};
};

}  // namespace weightcast
