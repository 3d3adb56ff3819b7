#pragma once

#include <sys/uio.h>

#include <array>
#include <optional>
#include <span>
#include <string>

#include "base/digest.h"
#include "proto/frame.h"
#include "transport/io/buffer.h"
#include "transport/io/net/frame_connection.h"

namespace weightcast {

/// The frame that is arriving on a connection: its header first, then its body, straight into its last place; a chunk
/// is hashed as it comes. A message's memory grows with what has come, not with what its header says; a chunk's is
/// untouched by then, and so only promised by the kernel. The caller reads into space(), counts with take(), and takes
/// each frame when it is complete.
class IncomingFrame {
 public:
  /// `buffers`, which must outlive it, gives the memory of chunks.
  explicit IncomingFrame(BufferPool& buffers) : buffers_(buffers) {}

  void set_limits(const ReceiveLimits& limits) { limits_ = limits; }

  /// Whether some of it is here.
  [[nodiscard]] bool begun() const { return header_.has_value() || header_have_bytes_ > 0; }
  [[nodiscard]] bool complete() const { return header_ && body_have_bytes_ == header_->body_bytes; }
  /// Bytes that are certain to come before the frame ends; 0 while its header is not known.
  [[nodiscard]] std::size_t body_bytes_left() const { return header_ ? header_->body_bytes - body_have_bytes_ : 0; }

  /// Where the next bytes go: the rest of this frame and the header of the next, so that one system call per chunk is
  /// enough. At most `bytes_max`. Good until the next call of anything here.
  [[nodiscard]] std::span<iovec> space(std::size_t bytes_max);

  /// Counts `bytes` that were put into space(), up to the end of a frame; returns those that are left of them then.
  /// Errors: those of decode_frame_header(); kTooLarge (above the limits), kNotAllowed (a chunk where none is taken).
  [[nodiscard]] Result<std::size_t> take(std::size_t bytes);

  /// Whether the complete frame is a chunk; then take_chunk(), else take_control().
  [[nodiscard]] bool is_chunk() const { return header_->type == FrameType::kChunk; }
  [[nodiscard]] ReceivedChunk take_chunk();
  [[nodiscard]] std::string take_control();

 private:
  [[nodiscard]] MutableBytes body();
  [[nodiscard]] Status check_limits() const;
  [[nodiscard]] Status begin_body();
  void end();

  BufferPool& buffers_;
  ReceiveLimits limits_;
  std::optional<FrameHeader> header_;
  std::string text_;
  BufferRef buffer_;
  DigestStream digest_;
  std::size_t body_have_bytes_ = 0;
  FrameHeaderBytes next_header_{};
  std::size_t header_have_bytes_ = 0;
  std::array<iovec, 2> pieces_{};
};

}  // namespace weightcast
