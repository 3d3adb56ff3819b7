#pragma once

#include <cstdint>

#include "base/ids.h"

namespace weightcast {

/// What a worker tells its learner of itself, every two seconds or so.
struct WorkerHeartbeat {
  Version weights{};          ///< that it generates under; 0: none yet
  bool is_active = true;      ///< it rolls out; false: it waits to be wanted
  double rollouts_per_s = 0;  ///< finished, over the last half minute or so
  double tokens_per_s = 0;    ///< sampled, the same
  double full_load_s = 0;     ///< since it began: seconds that a full engine would have worked for the same
  std::uint64_t under_way = 0;
  double price_per_hour = 0;
  double promised_rollouts_per_s = 0;  ///< before it is measured; 0: not known
};

}  // namespace weightcast
