#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "trainer/replay/shared_buffer.h"

namespace weightcast {

/// Where a learner's rollouts come from. All of them go through the buffer, which judges and counts them.
class RolloutSource {
 public:
  virtual ~RolloutSource() = default;
  /// Hands at least one more rollout to the buffer, which waits for some. Returns false if there are none any more.
  /// Errors: those of what the source stands on; the run then ends.
  [[nodiscard]] virtual Result<bool> fill(Instant now, SharedReplayBuffer& buffer) = 0;
  /// What it read that is no rollout, so that the buffer never saw it.
  [[nodiscard]] virtual std::uint64_t malformed() const { return 0; }
  /// Where it is, for a checkpoint, and back again. Errors: kCorrupt, kInvalidArgument (other settings).
  [[nodiscard]] virtual std::string save() const = 0;
  [[nodiscard]] virtual Status restore(std::string_view state) = 0;
};

}  // namespace weightcast
