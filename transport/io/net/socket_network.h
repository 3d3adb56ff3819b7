#pragma once

#include <optional>

#include "base/units.h"
#include "transport/io/net/io_threads.h"
#include "transport/io/net/network.h"
#include "transport/io/net/pacer.h"

namespace weightcast {

/// Connections over the host's sockets, with a node's rates and its buffers.
class SocketNetwork final : public Network {
 public:
  /// A rate of zero is no limit. Connections to and from other hosts are encrypted with `tls`, or not at all if it is
  /// null. `io_threads` move the bytes, and as many hash large chunks.
  SocketNetwork(UvLoop& loop, Rate uplink, Rate downlink, SocketOptions options,
                std::shared_ptr<TlsContext> tls = nullptr, unsigned io_threads = IoThreads::default_count());

  /// From now on these limit what is sent and received.
  void set_rates(Rate uplink, Rate downlink) {
    uplink_.set_rate(uplink);
    downlink_.set_rate(downlink);
  }

  std::unique_ptr<Attempt> dial(const Endpoint& to, OnDialled on_dialled) override;
  Result<std::unique_ptr<Listener>> listen(const Endpoint& at, Listener::OnConnection on_connection) override;
  Result<std::unique_ptr<Listener>> listen_locally(const std::string& path,
                                                   Listener::OnConnection on_connection) override;

 private:
  [[nodiscard]] ConnectionContext context() {
    return {loop_, buffers_, uplink_, downlink_, options_, tls_, hashing_ ? &*hashing_ : nullptr, &io_};
  }

  UvLoop& loop_;
  const SocketOptions options_;
  const std::shared_ptr<TlsContext> tls_;
  BufferPool buffers_{16 * kMiB};
  std::optional<OffloadThreads> hashing_;  // none on one core, where they would only take the loop's time
  IoThreads io_;
  Pacer uplink_;
  Pacer downlink_;
  Pacer unpaced_;  // of local sockets
};

}  // namespace weightcast
