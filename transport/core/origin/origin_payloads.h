#pragma once

#include <algorithm>
#include <functional>
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

/// What an origin holds, is making and could make: full payloads, patches, packed payloads. Pure. Owned by a
/// Publications, which knows who needs what. A payload begins open and is held from then on. It grows, and then is
/// complete or withdrawn.
/// Invariants: the origin's holdings change here alone; all known chunks of what is held are verified; versions only
/// grow, except after a withdrawal; the latest is held in full.
class OriginPayloads {
 public:
  /// All outlive it. `holdings` is changed here alone.
  OriginPayloads(const OriginConfig& config, Holdings& holdings, ActionQueue& actions)
      : config_(config), holdings_(holdings), actions_(actions) {}

  [[nodiscard]] const Holdings& held() const { return holdings_; }
  [[nodiscard]] bool holds(PayloadId payload) const { return holdings_.contains(payload); }
  [[nodiscard]] Version latest() const { return latest_; }
  /// The greatest number that a complete version ever had, withdrawn ones included.
  [[nodiscard]] Version last_used() const { return std::max(last_used_, latest_); }
  /// Whether the latest version is still being taken over.
  [[nodiscard]] bool taking_over() const;
  /// The newest version that is not being taken over.
  [[nodiscard]] Version newest_whole() const { return taking_over() ? newest_before(latest_) : latest_; }
  /// The newest version that is held and older than this one; kNoVersion if there is none.
  [[nodiscard]] Version newest_before(Version version) const;

  /// A payload that was found on disk. Returns whether it is complete, and so held.
  bool restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests);
  /// The full payload of a new version, open; it is the latest from now on. `packed_share`: see OriginCore.
  void begin_version(std::shared_ptr<const Manifest> manifest, double packed_share);
  /// What packing leaves of the latest version, as samples say or as is usual.
  [[nodiscard]] double packed_share() const { return packed_share_; }
  /// The full payload is complete, whether or not it was begun. Returns the message for the members that were told of
  /// its beginning, if it was begun. Errors: as complete().

  [[nodiscard]] Result<std::optional<wire::Message>> complete_version(const MadePayload& made);

  /// Whether that patch or packed payload can be made, or is being made.
  [[nodiscard]] bool can_make(PayloadId payload) const;
  [[nodiscard]] bool is_making(PayloadId payload) const { return making_.contains(payload); }
  /// Whether any is being made that leads to this version.
  [[nodiscard]] bool is_making_for(Version version) const;
  /// Asks for the payload, unless it is held or being made.
  void make(PayloadId payload);
  /// It is being made: from now on it is held, open. Errors: kNotFound (nobody asked for it), kInvalidArgument (the
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
  /// A payload is complete, whether or not it was begun. Returns the same as complete_version(). Errors: as grow(), and
  /// kInvalidArgument for a manifest that is open.
  [[nodiscard]] Result<std::optional<wire::Message>> complete(const MadePayload& made);
  /// Holds the payload no more. If it was the latest version, the one before is the latest again. Returns whether it
  /// was held.
  bool withdraw(PayloadId payload);

  /// What brings one who has `installed` to `version`, which is held and newer.
  [[nodiscard]] CatchUp catch_up_to(Version version, Version installed, bool patches_fit,
                                    const std::function<bool(PayloadId)>& can_make) const;
  /// The payloads that help nobody any more; none while a version is taken over, because that may be withdrawn.
  /// `in_use`: whether a worker still waits for chunks of the payload.
  [[nodiscard]] std::vector<PayloadId> unneeded(const std::function<bool(PayloadId)>& in_use) const;
  /// It is held no more.
  void forget(PayloadId payload) { holdings_.erase(payload); }

 private:
  /// What was of no use for another version may be of use when that number comes again.
  void set_latest(Version version);

  const OriginConfig& config_;
  Holdings& holdings_;
  ActionQueue& actions_;
  std::set<PayloadId> making_;                   // patches and packed payloads that were asked for
  std::set<PayloadId> useless_;                  // could not be made, or would not be small
  double packed_share_ = kPackedShareOfWeights;  // of the latest
  Version latest_{};
  Version last_used_{};
};

}  // namespace weightcast
