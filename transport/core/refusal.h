#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weightcast {

/// Why a node has turned a peer away: what the audit log and `status` count by. docs/SECURITY.md has the table.
enum class Refusal : std::uint8_t {
  kHandshake,    ///< it does not speak TLS as it should, or not in time
  kCertificate,  ///< another cluster's, expired, revoked, or not for connections
  kRevoked,      ///< it was connected when its keys were revoked
  kIdentity,     ///< it speaks as another node, or another node answers than was dialled
  kNameTaken,    ///< a worker of that name is connected
  kMessage,      ///< a message that it may not send, or not there
  kMalformed,    ///< bytes that are not the protocol's
  kSilent,       ///< neither Join nor Hello in time
  kCrowded,      ///< too many connections
  kEnrolment,    ///< no certificate for it
  kRevocations,  ///< a list of revoked keys that does not count
};

inline constexpr std::array<std::string_view, 11> kRefusalNames{"handshake",  "certificate", "revoked",    "identity",
                                                                "name_taken", "message",     "malformed",  "silent",
                                                                "crowded",    "enrolment",   "revocations"};

[[nodiscard]] constexpr std::string_view to_string(Refusal reason) {
  return kRefusalNames.at(static_cast<std::size_t>(reason));
}

}  // namespace weightcast
