#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/local_messages.h"
#include "tools/observe/metrics_text.h"

namespace weightcast {

/// Counts the publications that have ended since this process began, by how they ended, and how long they took: what
/// a gauge of the newest one tells only to who looks often enough. Pure.
class PublicationMeters {
 public:
  /// Publications from before are none of it.
  explicit PublicationMeters(std::int64_t began_unix_ms) : began_unix_ms_(began_unix_ms) {}

  /// All that the origin remembers, again and again. Each that has ended is counted once.
  void handle(std::span<const local::PublicationEntry> publications);
  void add_to(MetricsText& text) const;

 private:
  struct Times {
    std::array<std::uint64_t, 14> buckets{};
    std::uint64_t count = 0;
    double sum_s = 0;

    void add(double seconds);
  };

  const std::int64_t began_unix_ms_;
  std::set<std::pair<std::uint64_t, std::int64_t>> counted_;  // version, and when; of those that are remembered
  std::map<std::string, std::uint64_t> ended_;                // by state
  Times t50_, t90_, t100_;
};

}  // namespace weightcast
