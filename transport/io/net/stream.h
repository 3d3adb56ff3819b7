#pragma once

#include <sys/uio.h>

#include <deque>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "transport/io/unique_fd.h"
#include "transport/io/uv_loop.h"

namespace weightcast {

/// The bytes of one connected, non-blocking socket, TCP or Unix. Frames are read from it and written to it. The layers
/// above do not know how the bytes travel, so encryption has one place to go.
class Stream {
 public:
  /// What one call moved. If it moved fewer bytes than asked for, the rest would block.
  struct Moved {
    std::size_t bytes = 0;
    bool ended = false;  ///< read only: the peer will send nothing more
  };

  Stream(UvLoop& loop, UniqueFd fd, std::string peer, std::function<void(FdWatch::Ready)> on_ready);

  /// Descriptors that a peer on a Unix socket sends and nobody takes; further ones are closed.
  static constexpr std::size_t kDescriptorsMax = 4;

  /// Errors: kIo, with the peer in the detail.
  [[nodiscard]] Result<Moved> read(std::span<iovec> into);
  /// The oldest descriptor that came with the bytes read so far, if any.
  [[nodiscard]] UniqueFd take_descriptor();
  [[nodiscard]] Result<Moved> write(std::span<iovec> from);
  /// Ends the outgoing direction. Bytes that were written still arrive.
  void end_writing();

  void watch(bool readable, bool writable) { watch_->watch(readable, writable); }

  /// Wakes the reader when `bytes` bytes have arrived or the stream has ended, instead of at every packet. The caller
  /// knows that they will come.
  void set_low_water(std::size_t bytes);
  [[nodiscard]] std::size_t low_water() const { return low_water_; }
  /// How many bytes wait to be read.
  [[nodiscard]] std::size_t bytes_waiting() const;

  /// Closes the socket. Nothing but the destructor may be called after this.
  void close();

 private:
  [[nodiscard]] ssize_t read_once(std::span<iovec> into);

  UniqueFd fd_;
  std::string peer_;
  std::optional<FdWatch> watch_;
  bool is_tcp_;
  std::deque<UniqueFd> descriptors_;
  std::size_t low_water_ = 1;
};

}  // namespace weightcast
