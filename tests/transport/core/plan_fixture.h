#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "transport/core/plan.h"

namespace weightcast {

/// `count` members with ids from `first_id`, all alike.
inline std::vector<PlanMember> members_of(std::uint32_t count, Rate uplink, Rate downlink, std::uint32_t first_id = 1) {
  std::vector<PlanMember> members;
  for (std::uint32_t i = 0; i < count; ++i) members.push_back({PeerId{first_id + i}, uplink, downlink, true});
  return members;
}

/// ECHO-2's setting: B = 300 Mbit/s, b = 100 Mbit/s, 64 MiB.
inline PlanRequest echo_request(std::uint32_t count, Topology topology) {
  PlanRequest request;
  request.members = members_of(count, Rate::bits(100e6), Rate::bits(100e6));
  request.origin_uplink = Rate::bits(300e6);
  request.payload_bytes = 64 * kMiB;
  request.topology = topology;
  return request;
}

}  // namespace weightcast
