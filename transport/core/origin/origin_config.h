#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "proto/protocol.h"
#include "transport/core/node_config.h"
#include "transport/core/plan/plan.h"

namespace weightcast {

/// Whether full payloads are packed.
enum class Packing : std::uint8_t {
  kNever,
  kAuto,   ///< where that is faster, by the links' rates and both ends' speeds
  kAlways  ///< whatever the rates are
};

/// An operator's choices for an origin.
struct OriginOptions {
  Topology topology = Topology::kAuto;
  Duration hop_delay = std::chrono::microseconds(500);
  bool patches = true;  ///< false: full payloads only
  Packing packing = Packing::kAuto;
  std::uint32_t anchor_interval = 16;  ///< a worker further behind than this many stored patches gets a full payload
  /// Hosts that members may name as theirs, besides the one that they come from and those of their certificates; with *
  /// for any characters.
  std::vector<std::string> addresses_allowed;
};

/// The uplink is B.
struct OriginConfig : NodeConfig, OriginOptions {
  OriginConfig() { name = "origin"; }

  RunId run{};                  ///< that it publishes; kNoRun: what workers have counts as its own
  double pack_bytes_per_s = 0;  ///< that this host packs, by a sample; 0: not known, so that kAuto never packs
  ProtocolRange protocols{};    ///< that it speaks; a test's older node speaks fewer
};

}  // namespace weightcast
