#pragma once

#include <optional>
#include <string_view>

#include "base/checksum.h"
#include "base/ids.h"
#include "base/result.h"
#include "proto/limits.h"
#include "proto/wire.pb.h"

namespace weightcast {

/// The payload that a peer named; PayloadId{}, which names none, if the name breaks the rules.
[[nodiscard]] PayloadId payload_from_wire(const wire::PayloadId& message);
void payload_to_wire(PayloadId payload, wire::PayloadId& message);

/// The payload that a control message is about.
template <typename Message>
[[nodiscard]] PayloadId payload_of(const Message& message) {
  return payload_from_wire(message.payload());
}

template <typename Message>
void set_payload(Message& message, PayloadId payload) {
  payload_to_wire(payload, *message.mutable_payload());
}

/// A digest as a message's field holds it.
[[nodiscard]] inline std::string_view bytes_of(const Checksum& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), Checksum::kBytes};
}
/// Nothing for a field that holds no digest.
[[nodiscard]] std::optional<Checksum> digest_from_wire(std::string_view field);

/// The last message on a connection that is closed for this reason.
[[nodiscard]] inline wire::Message bye_of(const Error& why) {
  wire::Message message;
  message.mutable_bye()->set_code(static_cast<std::uint32_t>(why.code));
  message.mutable_bye()->set_reason(why.detail.substr(0, kReasonBytesMax));
  return message;
}

/// Whether a worker that failed to install a payload for this reason needs the full payload as it is. A packed payload
/// takes more room than the full one, because it lies beside its result.
[[nodiscard]] inline bool asks_for_full(PayloadId payload, Errc code) {
  if (!payload.is_encoded()) return false;
  return code == Errc::kWrongBase || code == Errc::kCorrupt || code == Errc::kInvalidArgument ||
         code == Errc::kUnsupported || (payload.is_packed() && code == Errc::kNoSpace);
}

}  // namespace weightcast
