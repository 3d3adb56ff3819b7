#pragma once

#include <memory>
#include <vector>

#include "base/time.h"
#include "transport/core/manifest/manifest.h"

namespace weightcast {

/// A payload that the origin has made itself, or as much of it as there is.
struct MadePayload {
  std::shared_ptr<const Manifest> manifest;
  std::vector<ContentDigest> chunk_digests;
  Duration took{};  ///< of a whole one: that making it took; zero where that was not measured
};

}  // namespace weightcast
