#pragma once

#include "base/ids.h"
#include "base/result.h"

namespace weightcast {

/// The payload that a control message names by `version` and `base_version`.
template <typename Message>
[[nodiscard]] PayloadId payload_of(const Message& message) {
  return {Version{message.version()}, Version{message.base_version()}};
}

template <typename Message>
void set_payload(Message& message, PayloadId payload) {
  message.set_version(payload.version.value);
  message.set_base_version(payload.base.value);
}

/// Whether a patch that could not be installed for this reason never can be: the worker needs the full payload.
[[nodiscard]] inline bool asks_for_full(Errc code) {
  return code == Errc::kWrongBase || code == Errc::kCorrupt || code == Errc::kInvalidArgument ||
         code == Errc::kUnsupported;
}

}  // namespace weightcast
