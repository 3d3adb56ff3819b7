#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest/checksum.h"
#include "base/digest/content_digest.h"
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

/// A checksum or content digest as a message's field holds it.
template <typename Digest>
[[nodiscard]] std::string_view bytes_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), Digest::kBytes};
}
/// Nothing for a field that holds no checksum.
[[nodiscard]] std::optional<Checksum> checksum_from_wire(std::string_view field);
/// The digests that a field holds, one behind the other; nothing if its length is no multiple of theirs.
[[nodiscard]] std::optional<std::vector<ContentDigest>> digests_from_wire(std::string_view field);

/// The last message on a connection that is closed for this reason.
[[nodiscard]] inline wire::Message bye_of(const Error& why) {
  wire::Message message;
  message.mutable_bye()->set_code(static_cast<std::uint32_t>(why.code));
  message.mutable_bye()->set_reason(why.detail.substr(0, kReasonBytesMax));
  return message;
}

/// Tells a child, or a member, that it gets nothing more of a payload from here.
[[nodiscard]] inline wire::Message not_available(PayloadId payload, std::string_view reason) {
  wire::Message message;
  set_payload(*message.mutable_not_available(), payload);
  message.mutable_not_available()->set_reason(std::string(reason));
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
