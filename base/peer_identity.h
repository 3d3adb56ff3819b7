#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weightcast {

/// A node's part in its cluster.
enum class Role : std::uint8_t {
  kOrigin,
  kWorker,
  kStranger,  ///< of a peer alone: it has no certificate, and may ask for one and nothing else
};

/// SHA-256 of a public key, as DER encodes it.
struct KeyId {
  std::array<std::byte, 32> bytes{};
  auto operator<=>(const KeyId&) const = default;
};

/// The identity that a peer has proven, by the certificate of its connection.
struct PeerIdentity {
  Role role = Role::kWorker;
  std::string name;
  KeyId key;
  std::vector<std::string> addresses;  ///< hosts at which it may be dialled, by its certificate
  std::vector<std::string> serials;    ///< of the certificate, and of those between it and the authority's
  std::int64_t expires_unix_s = 0;     ///< the certificate's last second

  bool operator==(const PeerIdentity&) const = default;
};

}  // namespace weightcast
