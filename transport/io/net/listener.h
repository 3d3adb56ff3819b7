#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "transport/io/net/endpoint.h"
#include "transport/io/net/frame_connection.h"

namespace weightcast {

/// Accepts connections.
class Listener {
 public:
  using OnConnection = std::function<void(std::unique_ptr<FrameConnection>)>;

  /// Port 0 takes a free one. Errors (the detail has the address and what to do): kBusy (taken), kNotAllowed, kIo.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> tcp(const ConnectionContext& context, const Endpoint& at,
                                                             OnConnection on_connection);
  /// A Unix socket that only its owner may use (mode 0600). A socket file that nobody listens on is replaced.
  /// Errors: kBusy (somebody answers on it), kAlreadyExists (not a socket), kNotAllowed, kIo.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> local(const ConnectionContext& context,
                                                               const std::string& path, OnConnection on_connection);
  virtual ~Listener() = default;
  /// With the port that was really taken.
  [[nodiscard]] virtual Endpoint endpoint() const = 0;
};

}  // namespace weightcast
