#pragma once

#include "base/digest/checksum.h"
#include "base/files/unique_fd.h"
#include "base/result.h"
#include "transport/io/net/frame_connection.h"

namespace weightcast::bench {

// Plain blocking TCP, with which the engine is compared.

struct TcpListener {
  UniqueFd socket;
  Endpoint endpoint;
};

/// Listens on a port; 0 takes a free one.
[[nodiscard]] Result<TcpListener> tcp_listen(const Endpoint& endpoint);
[[nodiscard]] Result<UniqueFd> tcp_connect(const Endpoint& endpoint);
/// Waits for a connection, 5 s at most. Errors: kTimedOut, kIo.
[[nodiscard]] Result<UniqueFd> tcp_accept(const UniqueFd& listener);
[[nodiscard]] Status tcp_send_all(const UniqueFd& socket, Bytes bytes);
/// Reads what is there; 0 at the end of the stream.
[[nodiscard]] Result<std::size_t> tcp_receive(const UniqueFd& socket, MutableBytes into);

}  // namespace weightcast::bench
