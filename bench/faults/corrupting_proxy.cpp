#include "bench/faults/corrupting_proxy.h"

#include <poll.h>
#include <sys/socket.h>

#include "bench/fleet/port_taker.h"

namespace weightcast::bench {
namespace {

constexpr int kPoll_ms = 50;

}  // namespace

Result<std::unique_ptr<CorruptingProxy>> CorruptingProxy::start(Network& network, NodeIndex node) {
  std::unique_ptr<CorruptingProxy> proxy(new CorruptingProxy(network, node));
  WC_ASSIGN(proxy->listener_, take_port(network, node, network.endpoint(node).port));
  proxy->accepting_ = std::thread([p = proxy.get()] { p->accept(); });
  return Result<std::unique_ptr<CorruptingProxy>>(std::move(proxy));
}

CorruptingProxy::~CorruptingProxy() {
  stop_ = true;
  if (accepting_.joinable()) accepting_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& session : sessions_) {
      ::shutdown(session->child.get(), SHUT_RDWR);
      ::shutdown(session->node.get(), SHUT_RDWR);
    }
  }
  for (std::thread& pump : pumps_) pump.join();
}

void CorruptingProxy::accept() {
  while (!stop_) {
    pollfd ready{listener_.socket.get(), POLLIN, 0};
    if (::poll(&ready, 1, kPoll_ms) <= 0) continue;
    auto child = tcp_accept(listener_.socket);
    if (!child.has_value()) continue;
    UniqueFd node;
    // From the host itself the rule does not apply.
    const Status connected = network_.on_host(node_, [&]() -> Status {
      WC_ASSIGN(node, tcp_connect(network_.endpoint(node_)));
      return {};
    });
    if (!connected.has_value()) continue;  // the node has ended; the child's connection ends, too
    const std::lock_guard lock(mutex_);
    Session& session = *sessions_.emplace_back(std::make_unique<Session>());
    session.child = std::move(*child);
    session.node = std::move(node);
    pumps_.emplace_back([this, &session] { pump(session.child, session.node, false); });
    pumps_.emplace_back([this, &session] { pump(session.node, session.child, true); });
  }
}

void CorruptingProxy::pump(const UniqueFd& from, const UniqueFd& to, bool corrupt) {
  std::vector<std::byte> buffer(64 * kKiB);
  std::uint64_t until_flip = kFlipEvery;
  for (;;) {
    const auto n = tcp_receive(from, buffer);
    if (!n.has_value() || *n == 0) break;
    if (corrupt && *n >= until_flip) {
      buffer[until_flip - 1] ^= std::byte{0x10};
      ++flipped_;
      until_flip += kFlipEvery;
    }
    until_flip -= *n;
    if (!tcp_send_all(to, Bytes(buffer).first(*n)).has_value()) break;
  }
  // Either end: what the other still has to say is for nobody.
  ::shutdown(from.get(), SHUT_RDWR);
  ::shutdown(to.get(), SHUT_RDWR);
}

}  // namespace weightcast::bench
