#include "trainer/intake/worker_fault.h"

#include <fmt/format.h>

namespace weightcast {

WorkerFault fault_of(const IntakeWorker& row, const LeaseRecord& leases) {
  using Kind = WorkerFault::Kind;
  if (leases.is_held_back) {
    return {
        Kind::kHeldBack,
        fmt::format(
            "it has had leases for long and brought no whole group ({} failed, {} overdue now): nobody counts on it",
            leases.groups_failed, leases.groups_overdue)};
  }
  for (const char* reason : {"not_leased", "other_group"}) {
    const auto refused = row.refused.find(reason);
    if (refused != row.refused.end()) {
      return {Kind::kNotLeased,
              fmt::format("{} of the rollouts that it sent were not leased to it ({})", refused->second, reason)};
    }
  }
  std::uint64_t others = 0;
  for (const auto& [reason, count] : row.refused) {
    // Rollouts that are late are nobody's fault.
    const bool is_late =
        reason == "stale" || reason == "group_closed" || reason == "lease_ended" || reason == "version_unknown";
    if (!is_late) others += count;
  }
  if (others <= row.admitted) return {};
  return {Kind::kRefused, fmt::format("{} of its rollouts were refused, {} admitted", others, row.admitted)};
}

}  // namespace weightcast
