#include "base/ids.h"

#include <fmt/format.h>

namespace weightcast {

std::string to_string(PayloadId payload) {
  if (payload.is_packed()) return fmt::format("packed version {}", payload.version.value);
  if (!payload.is_patch()) return fmt::format("version {}", payload.version.value);
  return fmt::format("patch from version {} to {}", payload.base.value, payload.version.value);
}

}  // namespace weightcast
