#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/settings/endpoint.h"
#include "transport/io/net/frame_connection.h"

namespace weightcast {

/// Accepts connections.
class Listener {
 public:
  using OnConnection = std::function<void(std::unique_ptr<FrameConnection>)>;

  /// Listens on `endpoint`. Port 0 takes a free port. Errors (the detail has the address and what to do): kBusy (the
  /// port is taken), kNotAllowed, kIo.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> tcp(const ConnectionContext& context, const Endpoint& at,
                                                             OnConnection on_connection);
  /// Listens on a Unix socket for its owner and root (mode 0600), and for SocketOptions::local_group if there is one
  /// (mode 0660, of that group). Replaces a socket file without a listener.
  /// Errors: kBusy (a process answers on it), kAlreadyExists (not a socket), kNotAllowed, kIo.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> local(const ConnectionContext& context,
                                                               const std::string& path, OnConnection on_connection);
  virtual ~Listener() = default;
  /// The address with the actual port.
  [[nodiscard]] virtual Endpoint endpoint() const = 0;
  /// Programs of other users that a Unix socket has turned away, so far.
  [[nodiscard]] virtual std::uint64_t refused_count() const { return 0; }
};

}  // namespace weightcast
