#include "transport/core/edge/links.h"

namespace weightcast {

void Links::set_origin(std::string host, std::uint16_t port) {
  origin_host_ = std::move(host);
  origin_port_ = port;
}

ConnId Links::open(const NodeAddress& peer, std::uint32_t lane) {
  Link wanted{peer.id, lane, peer.name, peer.host, peer.port};
  if (wanted.peer == kOriginId) {
    wanted.host = origin_host_;
    wanted.port = origin_port_;
  }
  for (auto& [conn, link] : links_) {
    if (link.peer != wanted.peer || link.lane != lane) continue;
    if (link.name == wanted.name && link.host == wanted.host && link.port == wanted.port) return conn;
    close(conn);  // the peer has moved, or the number is another's
    break;
  }
  const ConnId conn = ids_.next();
  actions_.push(action::Connect{conn, wanted.host, wanted.port});
  links_.emplace(conn, std::move(wanted));
  return conn;
}

bool Links::is_open(ConnId conn) const {
  const auto link = links_.find(conn);
  return link != links_.end() && link->second.open;
}

bool Links::leads_to_origin(ConnId conn) const {
  const auto link = links_.find(conn);
  return link != links_.end() && link->second.peer == kOriginId;
}

void Links::handle_connected(ConnId conn) { links_.at(conn).open = true; }

void Links::close(ConnId conn) {
  links_.erase(conn);
  actions_.push(action::Close{conn});
}

}  // namespace weightcast
