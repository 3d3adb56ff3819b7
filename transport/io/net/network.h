#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "transport/io/net/endpoint.h"
#include "transport/io/net/frame_connection.h"
#include "transport/io/net/listener.h"

namespace weightcast {

/// Where a node's connections come from: SocketNetwork in the daemon, sim::SimNetwork in the simulator. One per node,
/// on its loop's thread; outlives the node.
class Network {
 public:
  /// A connection that is being made. Dropping it cancels, from inside its callback too.
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
  /// As Listener::local(). Its connections are not the network's: they share no rate.
  [[nodiscard]] virtual Result<std::unique_ptr<Listener>> listen_locally(const std::string& path,
                                                                         Listener::OnConnection on_connection) = 0;
};

}  // namespace weightcast
