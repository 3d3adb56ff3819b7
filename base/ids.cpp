#include "base/ids.h"

#include <fmt/format.h>

namespace weightcast {

std::string to_string(RunId run) { return run == kNoRun ? std::string() : fmt::format("{:016x}", run.value); }

std::string to_string(PayloadId payload) {
  switch (payload.kind) {
    case PayloadKind::kFull: return fmt::format("version {}", payload.version.value);
    case PayloadKind::kPacked: return fmt::format("packed version {}", payload.version.value);
    case PayloadKind::kPatch:
      return fmt::format("patch from version {} to {}", payload.base.value, payload.version.value);
  }
  return {};
}

}  // namespace weightcast
