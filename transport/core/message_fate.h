#pragma once

#include <cstdint>

namespace weightcast {

/// Who speaks on a connection.
enum class Speaker : std::uint8_t {
  kStranger,  ///< accepted, and has not said who it is
  kMember,    ///< a worker, to its origin
  kChild,     ///< a worker, to a parent
  kOrigin,    ///< to a worker that has dialled it
  kParent,    ///< to a child that has dialled it
  kNobody,    ///< the connection has ended, or is only a probe
};

/// What becomes of a control message.
enum class MessageFate : std::uint8_t {
  kRead,
  kIgnored,  ///< this release does not know it, or has no use for it there: nothing of it is parsed
  kRefused,  ///< no release sends it there
};

/// By what message_kind_of() says. So what a peer may not say costs its bytes alone, however large it is.
[[nodiscard]] MessageFate fate_of(Speaker speaker, std::uint32_t kind);

}  // namespace weightcast
