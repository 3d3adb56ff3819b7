#include "transport/core/edge/links.h"

#include <algorithm>

namespace weightcast {
namespace {

// Of the time that connections took of late, by the median of so many peers: one that lies changes nothing.
constexpr int kHandshakePatience = 2;
constexpr std::size_t kHandshakesMin = 3;
constexpr std::size_t kHandshakesMax = 5;
constexpr Duration kDialPatienceMax = std::chrono::seconds(8);

}  // namespace

void Links::set_origin(std::string host, std::uint16_t port) {
  origin_host_ = std::move(host);
  origin_port_ = port;
}

ConnId Links::open(Instant now, const NodeAddress& peer, std::uint32_t lane) {
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
  wanted.dialled_at = now;
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

void Links::handle_connected(Instant now, ConnId conn) {
  Link& link = links_.at(conn);
  link.open = true;
  std::erase_if(handshakes_, [&](const auto& one) { return one.first == link.peer; });
  handshakes_.emplace_back(link.peer, now - link.dialled_at);
  if (handshakes_.size() > kHandshakesMax) handshakes_.erase(handshakes_.begin());
}

Duration Links::dial_patience(Duration least) const {
  if (handshakes_.size() < kHandshakesMin) return least;
  std::vector<Duration> took;
  for (const auto& [peer, lasted] : handshakes_) took.push_back(lasted);
  const auto median = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
  std::ranges::nth_element(took, median);
  return std::max(least, std::min(kHandshakePatience * *median, kDialPatienceMax));
}

void Links::close(ConnId conn) {
  links_.erase(conn);
  actions_.push(action::Close{conn});
}

}  // namespace weightcast
