#pragma once

#include <iterator>
#include <map>
#include <optional>

#include "base/ids.h"
#include "base/time.h"

namespace weightcast {

/// Since when a worker knows of versions that it has not installed, and how much of that went into payloads that it
/// gave up. Pure. Owned by an Intake. Invariant: at most kMax versions.
class AnnouncedVersions {
 public:
  static constexpr std::size_t kMax = 8;

  struct Wait {
    Instant since{};      ///< the version was announced for the first time, by whatever payload
    Duration given_up{};  ///< on payloads of the version that came to nothing
  };

  /// `arriving`: the version that stays known, however many are announced meanwhile.
  void handle_announced(Instant now, Version version, Version arriving) {
    waits_.try_emplace(version, Wait{now, {}});
    // Of those that are announced while one arrives the last is taken up.
    for (auto one = waits_.begin(); waits_.size() > kMax;) {
      one = one->first == version || one->first == arriving ? std::next(one) : waits_.erase(one);
    }
  }
  void handle_given_up(Version version, Duration lasted) {
    if (const auto found = waits_.find(version); found != waits_.end()) found->second.given_up += lasted;
  }
  /// Nothing older is taken up any more.
  void handle_installed(Version version) { waits_.erase(waits_.begin(), waits_.upper_bound(version)); }
  /// It is no version any more, and its number may come again.
  void forget(Version version) { waits_.erase(version); }
  void clear() { waits_.clear(); }

  /// Nothing of a version that is not known.
  [[nodiscard]] std::optional<Wait> find(Version version) const {
    const auto found = waits_.find(version);
    return found == waits_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<Version, Wait> waits_;
};

}  // namespace weightcast
