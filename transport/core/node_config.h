#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"
#include "transport/core/timeouts.h"

namespace weightcast {

/// Settings that origins and workers share.
struct NodeConfig {
  std::string name;
  std::string model_id;  ///< "" fits any: other nodes and versions of another one are refused
  Rate uplink{};
  std::uint32_t versions_kept = 2;
  Timeouts timeouts{};
};

}  // namespace weightcast
