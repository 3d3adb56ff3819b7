#include "transport/io/net/socket_network.h"

#include <utility>

#include "base/parallel.h"
#include "transport/io/net/dial.h"

namespace weightcast {
namespace {

class SocketAttempt final : public Network::Attempt {
 public:
  SocketAttempt(const ConnectionContext& context, const Endpoint& to, Network::OnDialled on_dialled)
      : dial_(context, to, std::move(on_dialled)) {}

 private:
  Dial dial_;
};

}  // namespace

SocketNetwork::SocketNetwork(UvLoop& loop, Rate uplink, Rate downlink, SocketOptions options,
                             std::shared_ptr<TlsContext> tls, unsigned io_threads)
    : loop_(loop),
      options_(std::move(options)),
      tls_(std::move(tls)),
      io_(io_threads),
      uplink_(loop, uplink),
      downlink_(loop, downlink),
      unpaced_(loop, Rate{}) {
  if (usable_cores() > 1) hashing_.emplace(loop, io_threads);
}

std::unique_ptr<Network::Attempt> SocketNetwork::dial(const Endpoint& to, OnDialled on_dialled) {
  return std::make_unique<SocketAttempt>(context(), to, std::move(on_dialled));
}

Result<std::unique_ptr<Listener>> SocketNetwork::listen(const Endpoint& at, Listener::OnConnection on_connection) {
  return Listener::tcp(context(), at, std::move(on_connection));
}

Result<std::unique_ptr<Listener>> SocketNetwork::listen_locally(const std::string& path,
                                                                Listener::OnConnection on_connection) {
  SocketOptions local;  // of the others none is for a local socket
  local.local_group = options_.local_group;
  return Listener::local({loop_, buffers_, unpaced_, unpaced_, local}, path, std::move(on_connection));
}

}  // namespace weightcast
