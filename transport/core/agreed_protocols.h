#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/ids.h"
#include "proto/protocol.h"

namespace weightcast {

/// Which protocol version both ends of each connection have agreed on. Pure. Called by the ActionQueue that owns it,
/// and by whoever reads the other end's word (Join, Joined, Hello, Welcome). Invariant: until then a connection speaks
/// kProtocolVersionMin, which every peer of the range knows.
class AgreedProtocols {
 public:
  void agree(ConnId conn, std::uint32_t version) { versions_[conn] = version; }
  void forget(ConnId conn) { versions_.erase(conn); }
  [[nodiscard]] std::uint32_t of(ConnId conn) const {
    const auto found = versions_.find(conn);
    return found == versions_.end() ? kProtocolVersionMin : found->second;
  }
  /// Whether the other end knows messages of that kind.
  [[nodiscard]] bool is_known(ConnId conn, wire::Message::KindCase kind) const {
    const std::uint32_t first = first_protocol_of(kind);
    return first <= kProtocolVersionMin || first <= of(conn);
  }
  [[nodiscard]] std::size_t size() const { return versions_.size(); }

 private:
  std::unordered_map<ConnId, std::uint32_t> versions_;
};

}  // namespace weightcast
