#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "base/time.h"

namespace weightcast::sim {

/// The first invariant that a run breaks, and what led there. Times count from the run's start.
class Verdict {
 public:
  explicit Verdict(std::uint64_t seed) : seed_(seed) {}

  /// The run has such a fault or member.
  void add_term(const std::string& term) { terms_ += "  with: " + term + "\n"; }
  /// An event, which people who read a violation may want to know. The last kEventsMax are kept.
  void remember(Duration at, std::string event);
  /// Only the first call counts.
  void violate(Duration at, const std::string& what);
  /// What, when, the seed, the terms, and the events before it.
  [[nodiscard]] const std::optional<std::string>& violation() const { return violation_; }

 private:
  static constexpr std::size_t kEventsMax = 60;

  const std::uint64_t seed_;
  std::string terms_;
  std::deque<std::pair<Duration, std::string>> events_;
  std::optional<std::string> violation_;
};

}  // namespace weightcast::sim
