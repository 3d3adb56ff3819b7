#pragma once

#include <memory>
#include <string>

#include "transport/io/buffer.h"
#include "transport/io/net/frame_connection.h"
#include "transport/io/net/listener.h"
#include "transport/io/net/pacer.h"
#include "transport/io/store/store.h"
#include "transport/io/uv_loop.h"
#include "transport/node/daemon.h"
#include "transport/node/driver.h"
#include "transport/node/local_api.h"

namespace weightcast {

/// "full", "packed" or "patch": what programs are told.
[[nodiscard]] std::string_view kind_of(PayloadId payload);

/// What origin and worker have in common: the store, the limits, the listeners. Members are in the order in which they
/// may be destroyed from the last to the first.
class Node : public LocalService {
 public:
  /// Takes the state directory and the port; nothing is promised to anyone yet.
  /// Errors: kBusy (another daemon has the directory), and those of Store::open() and Listener::tcp().
  [[nodiscard]] Status open_base(const DaemonConfig& config);
  /// Serves until the loop is stopped.
  virtual Status start() = 0;
  /// Says goodbye; the loop runs a little longer so that it is heard.
  virtual void stop(std::string_view reason) = 0;

  [[nodiscard]] Endpoint endpoint() const { return listener_->endpoint(); }
  [[nodiscard]] UvLoop& loop() { return loop_; }

  local::VersionsReply versions() override;
  std::optional<local::VersionInstalled> installed() override;
  std::optional<local::VersionPreparing> preparing() override;

 protected:
  [[nodiscard]] ConnectionContext context() { return {loop_, buffers_, *uplink_, *downlink_, socket_options_}; }
  /// Starts to accept nodes and local clients.
  [[nodiscard]] Status serve(Core& core);

  UvLoop loop_;
  DaemonConfig config_;
  BufferPool buffers_{16 * kMiB};
  SocketOptions socket_options_;
  std::unique_ptr<Pacer> uplink_;
  std::unique_ptr<Pacer> downlink_;
  std::unique_ptr<Pacer> local_pacer_;  // the local socket is not the network
  std::unique_ptr<Store> store_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<LocalApi> api_;
};

/// Errors: what kept the node from being made. See Node::open_base().
[[nodiscard]] Result<std::unique_ptr<Node>> open_node(const DaemonConfig& config);

}  // namespace weightcast
