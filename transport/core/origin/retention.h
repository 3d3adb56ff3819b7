#pragma once

#include <functional>
#include <map>
#include <vector>

#include "transport/core/edge/holdings.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/origin/publication.h"

namespace weightcast {

/// The payloads that help nobody any more, while `latest` is whole. A full payload stands for its version, whether or
/// not it is held. `in_use`: whether a worker still waits for chunks of the payload. Pure.
[[nodiscard]] std::vector<PayloadId> unneeded_payloads(const OriginConfig& config, const Holdings& holdings,
                                                       const std::map<Version, Publication>& publications,
                                                       Version latest, const std::function<bool(PayloadId)>& in_use);

}  // namespace weightcast
