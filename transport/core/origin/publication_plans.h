#pragma once

#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "transport/core/origin/origin_payloads.h"
#include "transport/core/origin/publication.h"

namespace weightcast {

/// The publications under way, by payload, and when their plans are fitted to the members. What changes a plan is only
/// noted; settle() then repairs each plan once, however many members were lost or joined. Pure. Owned by a
/// Publications. Invariant: every payload that has a publication is held.
class PublicationPlans {
 public:
  /// All outlive it.
  PublicationPlans(PublicationContext& context, const OriginPayloads& payloads)
      : context_(context), payloads_(payloads) {}

  /// The publication of a payload that is held; made if there is none.
  Publication& of(PayloadId payload);
  /// Null if there is none.
  [[nodiscard]] Publication* find(PayloadId payload);
  [[nodiscard]] const Publication* find(PayloadId payload) const {
    const auto found = publications_.find(payload);
    return found == publications_.end() ? nullptr : &found->second;
  }
  /// The one of that version that most members get; null if nobody gets it.
  [[nodiscard]] const Publication* main_publication(Version version) const;
  /// All members that some plan has; or some plan of that version.
  [[nodiscard]] std::unordered_set<PeerId> planned() const;
  [[nodiscard]] std::set<PeerId> planned(Version version) const;
  [[nodiscard]] const std::map<PayloadId, Publication>& all() const { return publications_; }
  /// To be called before the payload is held no more.
  void erase(PayloadId payload);

  /// The plan of that payload is to be repaired.
  void unsettle(Instant now, PayloadId payload);
  void unsettle_all(Instant now);
  /// A member's connection is gone, or made anew: the plans in which it was known are to be repaired.
  void handle_disconnected(Instant now, PeerId member);
  /// Something is to be settled, though no plan is known to be outdated.
  void note_change(Instant now);
  /// When settle() is due: at once, or so long after the last time that a fleet which is in motion leaves the loop time
  /// for other things.
  [[nodiscard]] std::optional<Instant> settle_due() const { return settle_due_; }
  /// Repairs plans, and tells those for whom something changed.
  void settle(Instant now);
  /// Plans were repaired so many times.
  [[nodiscard]] std::uint64_t repair_count() const { return repair_count_; }

 private:
  /// The plans of older versions' payloads that some have gone past are to be repaired.
  void unsettle_outdated();

  PublicationContext& context_;
  const OriginPayloads& payloads_;
  std::map<PayloadId, Publication> publications_;
  std::set<PayloadId> unsettled_;
  std::optional<Instant> settle_due_;
  std::optional<Instant> settled_at_;
  std::uint64_t repair_count_ = 0;
};

}  // namespace weightcast
