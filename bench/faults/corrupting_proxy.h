#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/fleet/network.h"
#include "bench/fleet/tcp.h"

namespace weightcast::bench {

/// A proxy in front of a node, on the node's host, which makes it a lying relay: it flips one bit in every `kFlipEvery`
/// bytes that the node sends to peers that dialled it. The node does not notice.
class CorruptingProxy {
 public:
  static constexpr std::uint64_t kFlipEvery = 4 * kMiB;

  /// Errors: those of take_port().
  [[nodiscard]] static Result<std::unique_ptr<CorruptingProxy>> start(Network& network, NodeIndex node);
  ~CorruptingProxy();
  CorruptingProxy(const CorruptingProxy&) = delete;
  CorruptingProxy& operator=(const CorruptingProxy&) = delete;

  [[nodiscard]] std::uint64_t flipped() const { return flipped_; }

 private:
  struct Session {
    UniqueFd child;
    UniqueFd node;
  };

  CorruptingProxy(Network& network, NodeIndex node) : network_(network), node_(node) {}
  void accept();
  void pump(const UniqueFd& from, const UniqueFd& to, bool corrupt);

  Network& network_;
  NodeIndex node_;
  TcpListener listener_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> flipped_{0};
  std::mutex mutex_;  // guards sessions_
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::thread> pumps_;  // of the accepting thread until that has ended
  std::thread accepting_;
};

}  // namespace weightcast::bench
