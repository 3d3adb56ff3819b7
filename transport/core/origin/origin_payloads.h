#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "transport/core/action.h"
#include "transport/core/edge/holdings.h"
#include "transport/core/origin/catch_up.h"
#include "transport/core/origin/origin_config.h"

namespace weightcast {

/// A payload that the origin has made itself, or as much of it as there is.
struct MadePayload {
  std::shared_ptr<const Manifest> manifest;
  std::vector<ContentDigest> chunk_digests;
  Duration took{};  ///< of a whole one: that making it took; zero where that was not measured
};

/// The versions of an origin, and what it holds, is making and could make of them: full payloads, patches, packed
/// payloads. Pure. Owned by a Publications, which knows who needs what. A payload begins open and is held from then on.
/// It grows, and then is complete or withdrawn. A version that was published by its patch is complete in the store, but
/// its full payload is held only once somebody needed it.
/// Invariants: the origin's holdings and versions change here alone; all known chunks of what is held are verified;
/// versions only grow, except after a withdrawal; the latest is one of the versions; a full payload is held of no other
/// than these.
class OriginPayloads {
 public:
  /// All outlive it. `holdings` is changed here alone.
  OriginPayloads(const OriginConfig& config, Holdings& holdings, ActionQueue& actions)
      : config_(config), holdings_(holdings), actions_(actions) {}

  [[nodiscard]] const Holdings& held() const { return holdings_; }
  [[nodiscard]] bool holds(PayloadId payload) const { return holdings_.contains(payload); }
  /// All versions that the store has or takes over, each with the manifest that it was published by: of its full
  /// payload, or of a patch.
  [[nodiscard]] const std::map<Version, std::shared_ptr<const Manifest>>& versions() const { return versions_; }
  /// Null if it is none of them.
  [[nodiscard]] const Manifest* find_version(Version version) const;
  /// What the full payload of one of the versions takes, whether or not it is held.
  [[nodiscard]] std::uint64_t full_bytes(Version version) const;
  [[nodiscard]] Version latest() const { return latest_; }
  /// The greatest number that a complete version ever had, withdrawn ones included.
  [[nodiscard]] Version last_used() const { return std::max(last_used_, latest_); }
  /// Whether the latest version is still being taken over, or made.
  [[nodiscard]] bool taking_over() const;
  /// The payload by which that is published: the full one, or the patch from the version before; PayloadId{} if none
  /// is.
  [[nodiscard]] PayloadId begun() const;
  /// The newest version that is not being taken over.
  [[nodiscard]] Version newest_whole() const { return taking_over() ? newest_before(latest_) : latest_; }
  /// The newest version that is older than this one; kNoVersion if there is none.
  [[nodiscard]] Version newest_before(Version version) const;

  /// A complete version that was found on disk: by its full payload, or by the manifest of the patch that it was
  /// published by, without digests. Returns whether it is one of the versions now.
  bool restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests);
  /// A complete patch that was found on disk.
  void restore_patch(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests);
  /// The payload that a new version is published by, open; that version is the latest from now on. `packed_share`: see
  /// OriginCore. Errors: kInvalidArgument (it is not open, or none that complete_version() would take; another version
  /// is begun).
  [[nodiscard]] Status begin_version(std::shared_ptr<const Manifest> manifest, double packed_share);
  /// What packing leaves of the latest version, as samples say or as is usual.
  [[nodiscard]] double packed_share() const { return packed_share_; }
  /// The payload that a new version is published by is complete: its full payload, whether or not it was begun, or the
  /// patch from the latest version. Returns the message for the members that were told of its beginning, if it was
  /// begun. Errors: as complete(), and kInvalidArgument (a packed payload; a patch from another version; another
  /// payload than was begun).
  [[nodiscard]] Result<std::optional<wire::Message>> complete_version(const MadePayload& made);

  /// Whether that payload can be made, or is being made.
  [[nodiscard]] bool can_make(PayloadId payload) const;
  [[nodiscard]] bool is_making(PayloadId payload) const { return making_.contains(payload); }
  /// Whether any is being made that leads to this version.
  [[nodiscard]] bool is_making_for(Version version) const;
  /// Asks for the payload, unless it is held or being made.
  void make(PayloadId payload);
  /// It is being made: from now on it is held, open. Errors: kNotFound (nobody asked for it, or its version was
  /// withdrawn), kInvalidArgument (the
  /// manifest is not open), kAlreadyExists (it is held).
  Status begin_made(std::shared_ptr<const Manifest> manifest);
  /// It was made, or could not be. Returns whether it was asked for.
  bool end_making(PayloadId payload) { return making_.erase(payload) > 0; }
  /// Does not have it made again while its version is the latest.
  void give_up(PayloadId payload) { useless_.insert(payload); }

  /// A payload that was begun has grown to this. Returns the message for the members that were told of it. Errors:
  /// kNotFound (it was not begun), kInvalidArgument (it does not continue what was begun, or digests are missing or
  /// wrong). The caller withdraws it after an error.
  [[nodiscard]] Result<wire::Message> grow(const MadePayload& grown);
  /// A payload is complete, whether or not it was begun. Returns the same as complete_version(). Errors: as grow(),
  /// kInvalidArgument for a manifest that is open, kNotFound (a full payload of no version), kCorrupt (a full payload
  /// with another snapshot digest than its version).
  [[nodiscard]] Result<std::optional<wire::Message>> complete(const MadePayload& made);
  /// Holds the payload no more.
  void withdraw(PayloadId payload) { holdings_.erase(payload); }
  /// The version is none any more, and neither its full payload is held nor what it was begun by. If it was the latest,
  /// the one before is the latest again. The number stays used if the version was complete.
  void withdraw_version(Version version);

  /// What brings one who has `installed` to `version`, which is one of the versions and newer. It refuses full payloads
  /// up to `refused`.
  [[nodiscard]] CatchUp catch_up_to(Version version, Version installed, Version refused, bool patches_fit,
                                    const std::function<bool(PayloadId)>& can_make) const;
  /// The payloads that help nobody any more; none while a version is taken over, because that may be withdrawn. A full
  /// payload stands for its version, whether or not it is held. `in_use`: whether a worker still waits for chunks of
  /// the payload.
  [[nodiscard]] std::vector<PayloadId> unneeded(const std::function<bool(PayloadId)>& in_use) const;
  /// It is held no more; of a full payload, the version is none any more.
  void forget(PayloadId payload);

 private:
  /// What was of no use for another version may be of use when that number comes again.
  void set_latest(Version version);
  [[nodiscard]] Status check_publication(const Manifest& manifest) const;
  /// As complete(), of whatever version.
  [[nodiscard]] Result<std::optional<wire::Message>> close(const MadePayload& made);
  /// Whether a payload that is being made is made of that version.
  [[nodiscard]] bool is_read(Version version) const;
  [[nodiscard]] std::set<PayloadId> chain_to(Version version) const;

  const OriginConfig& config_;
  Holdings& holdings_;
  ActionQueue& actions_;
  std::map<Version, std::shared_ptr<const Manifest>> versions_;
  std::set<PayloadId> making_;                   // that were asked for
  std::set<PayloadId> useless_;                  // could not be made, or would not be small
  double packed_share_ = kPackedShareOfWeights;  // of the latest
  Version latest_{};
  Version last_used_{};
};

}  // namespace weightcast
