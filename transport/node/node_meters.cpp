#include "transport/node/node_meters.h"

#include <algorithm>
#include <string_view>

namespace weightcast {
namespace {

constexpr std::array<std::string_view, 6> kPhaseNames = {"take", "encode", "transfer", "apply", "switch", "engine"};

}  // namespace

void NodeMeters::note(Phase phase, Duration lasted) {
  Times& times = times_.at(static_cast<std::size_t>(phase));
  const double seconds = to_seconds(lasted);
  const auto bucket = std::ranges::lower_bound(kAtMost_s, seconds);
  if (bucket != kAtMost_s.end()) ++times.counts.at(static_cast<std::size_t>(bucket - kAtMost_s.begin()));
  ++times.count;
  times.sum_s += seconds;
}

void NodeMeters::describe(local::NodeStatus& self) const {
  for (std::size_t i = 0; i < times_.size(); ++i) {
    const Times& times = times_.at(i);
    if (times.count == 0) continue;
    local::PhaseTimes& out = self.phases.emplace_back();
    out.phase = kPhaseNames.at(i);
    out.count = times.count;
    out.sum_s = times.sum_s;
    for (std::size_t bucket = 0; bucket < kAtMost_s.size(); ++bucket) {
      out.buckets.push_back({kAtMost_s.at(bucket), times.counts.at(bucket)});
    }
  }
}

}  // namespace weightcast
