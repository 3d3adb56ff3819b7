#pragma once

#include <string>

#include "trainer/intake/worker_table.h"
#include "trainer/replay/lease_table.h"

namespace weightcast {

/// The reason not to trust a worker, in one sentence for the learner's operator.
struct WorkerFault {
  enum class Kind {
    kNone,
    kHeldBack,   ///< it brings nothing of what is leased to it
    kNotLeased,  ///< it sends what was not leased to it
    kRefused,    ///< most of what it sends is refused, for other reasons than its age
  };
  Kind kind = Kind::kNone;
  std::string text;  ///< "" of kNone
};

[[nodiscard]] WorkerFault fault_of(const IntakeWorker& row, const LeaseRecord& leases);

}  // namespace weightcast
