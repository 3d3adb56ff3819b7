#include "bench/fleet/port_taker.h"

#include "bench/fleet/process.h"

namespace weightcast::bench {

Result<TcpListener> take_port(Network& network, NodeIndex node, std::uint16_t port) {
  if (network.namespace_fd(node) < 0) {
    return fail(Errc::kUnsupported, Op::kConfigure, "to take a node's port: needs hosts of their own; use --netns");
  }
  TcpListener listener;
  WC_TRY(network.on_host(node, [&]() -> Status {
    WC_ASSIGN(listener, tcp_listen({network.endpoint(node).host, 0}));
    return {};
  }));
  WC_TRY(run_tool({"iptables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "--dport", std::to_string(port), "-j",
                   "REDIRECT", "--to-ports", std::to_string(listener.endpoint.port)},
                  "", network.namespace_fd(node)));
  return listener;
}

}  // namespace weightcast::bench
