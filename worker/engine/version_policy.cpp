#include "worker/engine/version_policy.h"

#include <algorithm>

namespace weightcast {

void VersionPolicy::handle_installed(VersionName name) { newest_ = std::max(newest_, name); }
void VersionPolicy::handle_settled(VersionName name) { settled_ = std::max(settled_, name); }

std::optional<VersionName> VersionPolicy::next() const {
  if (newest_ > settled_) return newest_;
  return std::nullopt;
}

}  // namespace weightcast
