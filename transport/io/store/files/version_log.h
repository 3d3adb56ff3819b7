#pragma once

#include <cstdint>
#include <map>

#include "base/ids.h"

namespace weightcast {

/// What a power cut would leave of versions that lie in memory: an anchor, which is a whole version on the disk, and
/// the patches that lead on from it. Pure. Owned by a store. Invariant: each link of the log begins at the anchor or
/// where another link ends.
class VersionLog {
 public:
  /// So many patches may follow an anchor, or so much of a snapshot's bytes, before the next one is due: a start after
  /// a power cut applies them all.
  struct Options {
    std::uint32_t patches_max = 32;
    double bytes_share_max = 0.5;
  };
  explicit VersionLog(Options options) : options_(options) {}

  /// A whole version is on the disk. It is the anchor from now on, and what led to it is no link any more.
  void handle_anchor(Version version);
  /// A patch is on the disk, which goes on from what the log holds.
  void handle_logged(PayloadId patch, std::uint64_t bytes);

  [[nodiscard]] Version anchor() const { return anchor_; }
  /// Whether a power cut would leave that version.
  [[nodiscard]] bool holds(Version version) const {
    return version != kNoVersion && (version == anchor_ || links_.contains(version));
  }
  /// Whether the log would be broken without that patch.
  [[nodiscard]] bool needs(PayloadId patch) const;
  /// Whether the patch leads on from what the log holds, to what it does not hold.
  [[nodiscard]] bool goes_on_with(PayloadId patch) const {
    return patch.is_patch() && holds(patch.base) && patch.version > anchor_ && !holds(patch.version);
  }
  /// Whether the log has become long for a snapshot of that size.
  [[nodiscard]] bool is_long(std::uint64_t snapshot_bytes) const;

 private:
  struct Link {
    Version base{};
    std::uint64_t bytes = 0;
  };
  Options options_;
  Version anchor_{};
  std::map<Version, Link> links_;  // by where they lead
};

}  // namespace weightcast
