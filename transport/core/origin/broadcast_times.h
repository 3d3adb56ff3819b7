#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/time.h"
#include "transport/core/origin/membership.h"

namespace weightcast {

/// When which fraction of the active members had installed each of the last versions. Pure. Called by the Publications
/// that owns it. Invariant: a time, once there, does not change.
class BroadcastTimes {
 public:
  /// Times count from `started_at`; absent until reached.
  struct Times {
    std::optional<Duration> t50, t90, t100;
  };

  /// One that was published before a restart: its time counts from the first who wants it.
  void restore(Version version) { versions_[version]; }
  void handle_wanted(Instant now, Version version);
  /// A new version. Returns the older ones whose publication ends with that.
  [[nodiscard]] std::vector<Version> handle_published(Version version, Instant started_at);

  // The following return the versions that everybody has now: their publication has ended.

  /// Somebody has installed something.
  [[nodiscard]] std::vector<Version> handle_installed(Instant now, const Membership& members);
  /// Everybody is counted anew.
  [[nodiscard]] std::vector<Version> count(Instant now, const Membership& members);
  [[nodiscard]] std::vector<Version> count(Instant now, const Membership& members, Version version);

  /// Somebody has joined, and is counted at the next install.
  void handle_joined();

  /// Null if it is not known any more.
  [[nodiscard]] const Times* find(Version version) const;

 private:
  struct Entry {
    Times times;
    bool announced = false;  // false for one that was restored, and nobody wanted yet
    bool ended = false;      // everyone has it, or a newer one came
    Instant started_at{};
    std::uint32_t installs_to_count = 0;  // before so many more no fraction that is asked for can be reached
  };

  /// Whether its publication ends with this.
  [[nodiscard]] static bool count(Instant now, const Membership& members, Version version, Entry& entry);
  [[nodiscard]] static bool end(Entry& entry);

  std::map<Version, Entry> versions_;
};

}  // namespace weightcast
