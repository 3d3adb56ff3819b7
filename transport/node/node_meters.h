#pragma once

#include <array>
#include <cstdint>

#include "base/time.h"
#include "proto/local_messages.h"

namespace weightcast {

/// How long publications stayed in each of their phases on this node, since its process began. Pure.
class NodeMeters {
 public:
  enum class Phase : std::uint8_t {
    kTake,      ///< at the origin: from the request until it has its own copy
    kEncode,    ///< at the origin: comparing two versions, or packing one
    kTransfer,  ///< at a worker: from the first chunk until all were stored
    kApply,     ///< what was left of decoding, and checking the whole
    kSwitch,    ///< making it the version in use
    kEngine     ///< from there until an engine took it
  };

  void note(Phase phase, Duration lasted);

  /// Of the phases that were ever in.
  void describe(local::NodeStatus& self) const;

 private:
  /// 1 ms to 10 min: three in each decade.
  static constexpr std::array kAtMost_s = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,   0.25, 0.5,
                                           1.0,   2.5,    5.0,   10.0, 30.0,  60.0, 180.0, 600.0};
  struct Times {
    std::array<std::uint64_t, kAtMost_s.size()> counts{};
    std::uint64_t count = 0;
    double sum_s = 0;
  };
  std::array<Times, 6> times_{};
};

}  // namespace weightcast
