#include "sim/verdict.h"

#include <fmt/format.h>

namespace weightcast::sim {

void Verdict::remember(Duration at, std::string event) {
  if (events_.size() == kEventsMax) events_.pop_front();
  events_.emplace_back(at, std::move(event));
}

void Verdict::violate(Duration at, const std::string& what) {
  if (violation_) return;
  violation_ = fmt::format("seed {}, {:.6f} s: {}\n{}", seed_, to_seconds(at), what, terms_);
  for (const auto& [when, event] : events_) *violation_ += fmt::format("  {:.6f} {}\n", to_seconds(when), event);
}

}  // namespace weightcast::sim
