#pragma once

#include <sys/uio.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/files/unique_fd.h"
#include "base/result.h"
#include "transport/io/uv_loop.h"
#include "transport/security/tls.h"

namespace weightcast {

/// The bytes of one connected, non-blocking socket, TCP or Unix, with or without encryption. Frames are read from it
/// and written to it. The layers above see how the bytes travel in two places: a handshake comes first, and a write may
/// be taken before all of it has left.
///
/// One thread at a time has it: that of the loop which watches it. Others may ask for peer() and bytes_waiting().
class Stream final : private TlsWire {
 public:
  /// What one call moved. If it moved fewer bytes than asked for, the rest would block.
  struct Moved {
    std::size_t bytes = 0;
    std::size_t wire_bytes = 0;  ///< on the wire, headers of encrypted records included
    bool ended = false;          ///< read only: the peer will send nothing more
  };

  /// `tls`: encrypts everything; null: nothing is encrypted.
  Stream(UniqueFd fd, std::string peer, std::unique_ptr<TlsSession> tls);

  /// From now on `loop` watches the socket, on whose thread this is called. Nothing watched it before.
  void attach(UvLoop& loop, std::function<void(FdWatch::Ready)> on_ready);
  /// Nothing watches the socket any more. On the thread of the loop that did.
  void detach() { watch_.reset(); }

  [[nodiscard]] bool is_encrypted() const { return tls_ != nullptr; }
  /// Of an encrypted stream, before all else: goes on until the socket would block. True when it is done. Errors, with
  /// the peer in the detail: those of TlsSession::handshake().
  [[nodiscard]] Result<bool> handshake();
  /// Who the peer is; nothing before the handshake of an encrypted stream is done, and without encryption.
  [[nodiscard]] std::optional<PeerIdentity> peer() const {
    return tls_ && tls_->done() ? std::optional(tls_->peer()) : std::nullopt;
  }
  [[nodiscard]] const std::string& peer_host() const { return peer_; }
  /// After a handshake that failed: the peer does not encrypt.
  [[nodiscard]] bool peer_is_plain() const { return tls_ != nullptr && tls_->peer_is_plain(); }
  /// Sends a few bytes as they are, encryption or not, to a peer that cannot read anything else. What the socket does
  /// not take at once is lost.
  void say_plainly(Bytes bytes);

  /// Descriptors that a peer on a Unix socket sends and nobody takes; further ones are closed.
  static constexpr std::size_t kDescriptorsMax = 4;

  /// Errors, with the peer in the detail: kIo; of an encrypted stream those of TlsSession::read().
  [[nodiscard]] Result<Moved> read(std::span<iovec> into);
  /// Reads what comes without looking at it. Returns false at the end of the stream.
  [[nodiscard]] bool discard(MutableBytes scratch, std::size_t& bytes);
  /// The oldest descriptor that came with the bytes read so far, if any.
  [[nodiscard]] UniqueFd take_descriptor();
  [[nodiscard]] Result<Moved> write(std::span<iovec> from);
  /// Whether bytes that write() took wait here, encrypted, for the socket: write() again when it is writable, if only
  /// with nothing.
  [[nodiscard]] bool holds_output() const { return tls_ != nullptr && tls_->holds_output(); }
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
  [[nodiscard]] Result<Moved> read_socket(std::span<iovec> into);
  [[nodiscard]] Result<std::size_t> write_socket(std::span<iovec> from, int flags);
  Result<Got> read_wire(MutableBytes into) override;
  Result<std::size_t> write_wire(Bytes from, bool more_follows) override;

  UniqueFd fd_;
  std::string peer_;
  std::unique_ptr<TlsSession> tls_;
  std::optional<FdWatch> watch_;
  bool is_tcp_;
  std::deque<UniqueFd> descriptors_;
  std::size_t low_water_ = 1;
};

}  // namespace weightcast
