#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/time.h"
#include "transport/core/origin/members/membership.h"

namespace weightcast {

/// T_bcast of the last versions: when which fraction of the active members had installed each. Pure. Called by the
/// Publications that owns it. Invariant: a time that is known does not change.
class BroadcastTimes {
 public:
  /// Times count from `started_at`; absent until reached.
  struct Times {
    std::optional<Duration> t50, t90, t100;
  };

  /// A version that was published before a restart. Its time counts from the first member that needs it.
  void restore(Version version) { versions_[version]; }
  void handle_wanted(Instant now, Version version);
  /// A new version. Returns the older ones whose publication ends with that.
  [[nodiscard]] std::vector<Version> handle_published(Version version, Instant started_at);

  // The following return the versions that everybody has now: their publication has ended.

  /// A member has installed a version.
  [[nodiscard]] std::vector<Version> handle_installed(Instant now, const Membership& members);
  /// Counts all members anew.
  [[nodiscard]] std::vector<Version> count(Instant now, const Membership& members);

  /// A member has joined. It counts from the next install on.
  void handle_joined();

  /// Calls `take(version, times)` for each that is known.
  template <typename Take>
  void for_each(Take take) const {
    for (const auto& [version, entry] : versions_) take(version, entry.times);
  }
  /// Null if it is not known any more.
  [[nodiscard]] const Times* find(Version version) const;

 private:
  struct Entry {
    Times times;
    bool announced = false;  // false for a restored version that no member has needed so far
    bool ended = false;      // every member has it, or a newer one came
    Instant started_at{};
    std::uint32_t installs_to_count = 0;  // so many more are needed before the next fraction can be reached
  };

  /// Whether its publication ends with this.
  [[nodiscard]] static bool count(Instant now, const Membership& members, Version version, Entry& entry);
  [[nodiscard]] static bool end(Entry& entry);

  std::map<Version, Entry> versions_;
};

}  // namespace weightcast
