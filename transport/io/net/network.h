#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/settings/endpoint.h"
#include "transport/io/net/frame_connection.h"
#include "transport/io/net/listener.h"

namespace weightcast {

/// The source of a node's connections: SocketNetwork in the daemon, sim::Cables in the simulator. A node has one,
/// on its loop's thread. It outlives the node.
class Network {
 public:
  /// A connection attempt. Destroying it cancels, even from inside its callback.
  class Attempt {
   public:
    virtual ~Attempt() = default;
  };
  using OnDialled = std::function<void(Result<std::unique_ptr<FrameConnection>>)>;

  Network() = default;
  virtual ~Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// As Dial: `on_dialled` runs once, later, with the connection or the error (kTimedOut, kIo).
  [[nodiscard]] virtual std::unique_ptr<Attempt> dial(const Endpoint& to, OnDialled on_dialled) = 0;
  /// As Listener::tcp().
  [[nodiscard]] virtual Result<std::unique_ptr<Listener>> listen(const Endpoint& at,
                                                                 Listener::OnConnection on_connection) = 0;
  /// As Listener::local(). The node's rates do not apply to its connections.
  [[nodiscard]] virtual Result<std::unique_ptr<Listener>> listen_locally(const std::string& path,
                                                                         Listener::OnConnection on_connection) = 0;
};

}  // namespace weightcast
