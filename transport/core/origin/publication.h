#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "transport/core/origin/made_payload.h"
#include "transport/core/origin/payload_plan.h"
#include "transport/core/origin/publication_context.h"

namespace weightcast {

/// One version becoming available: the manifest that it was published by, the payloads that lead to it, and a plan for
/// each that somebody gets. A payload begins open and is held from then on. It grows, and then is complete or
/// withdrawn. A version that was published by its patch is complete in the store, but its full payload is held only
/// once somebody needed it. Pure. Owned by the Publications, which know of other versions and of who needs what.
///
/// It outlives its version: patches to a version that the store has no more may lead on to newer ones.
/// Invariants: holdings of payloads that lead to the version change here alone; all known chunks of what is held are
/// verified; a payload that has a plan is held; the full payload is held only while the store has the version.
class Publication {
 public:
  /// `context` outlives it.
  Publication(PublicationContext& context, Version version) : context_(context), version_(version) {}

  [[nodiscard]] Version version() const { return version_; }
  /// That the version was published by: of its full payload, or of a patch. Null if the store does not have the
  /// version, or not any more.
  [[nodiscard]] const Manifest* manifest() const { return manifest_.get(); }
  [[nodiscard]] bool in_store() const { return manifest_ != nullptr; }
  /// Whether the version is still being taken over, or made.
  [[nodiscard]] bool open() const { return in_store() && manifest_->open; }
  /// The payload by which that is published: the full one, or the patch from the version before; PayloadId{} unless it
  /// is open.
  [[nodiscard]] PayloadId begun() const { return open() ? manifest_->id() : PayloadId{}; }
  /// What the full payload of a version in the store takes, whether or not it is held.
  [[nodiscard]] std::uint64_t full_bytes() const;
  /// Whether nothing is left of it but payloads that are held and that nobody gets.
  [[nodiscard]] bool over() const { return !in_store() && making_.empty() && plans_.empty(); }

  // ---- the version

  /// It is published by that payload, which is open and held from now on.
  void begin(std::shared_ptr<const Manifest> manifest);
  /// The payload that it is published by is complete: the full payload, whether or not it was begun, or a patch.
  /// Errors: as hold_made().
  Status publish(const MadePayload& made);
  /// It was found on disk: by its full payload, or by the manifest of the patch that it was published by, without
  /// digests. Returns whether it is one of the versions now.
  bool restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests);
  /// The version is withdrawn, and its full payload and what it was begun by from everybody who was told of them.
  void withdraw(std::string_view why);

  // ---- payloads that are made when somebody needs them

  /// Whether that payload can be made, or is being made. A patch also needs its base.
  [[nodiscard]] bool can_make(PayloadId payload) const;
  [[nodiscard]] const std::set<PayloadId>& making() const { return making_; }
  [[nodiscard]] bool is_making(PayloadId payload) const { return making_.contains(payload); }
  /// Asks for the payload, unless it is held or being made.
  void make(Instant now, PayloadId payload);
  /// It is being made: from now on it is held, open. Errors: kNotFound (nobody asked for it, or its version was
  /// withdrawn), kInvalidArgument (the manifest is not open), kAlreadyExists (it is held).
  Status begin_made(std::shared_ptr<const Manifest> manifest);
  /// What was begun has grown to this; who was told of it hears so. Errors: kNotFound (it was not begun),
  /// kInvalidArgument (it does not continue what was begun, or digests are missing or wrong). The caller withdraws it
  /// after an error.
  Status grow(const MadePayload& grown);
  /// It was made, or could not be. Returns whether it was asked for.
  bool end_making(PayloadId payload) { return making_.erase(payload) > 0; }
  /// A payload that was made is complete, whether or not it was begun. Errors: as grow(), kInvalidArgument for a
  /// manifest that is open, kNotFound (a full payload of a version that is none any more), kCorrupt (a full payload
  /// with another snapshot digest than its version).
  Status hold_made(const MadePayload& made);
  /// Does not have it made again while the version is the latest.
  void give_up(PayloadId payload) { useless_.insert(payload); }
  /// The same until make_again(), as a disk may be full for a while.
  void put_off(PayloadId payload) { put_off_.insert(payload); }
  void make_again() { put_off_.clear(); }
  /// Another version is the latest: what was of no use may be of use when this one is so again.
  void handle_not_latest() { useless_.clear(); }
  /// Takes a payload back from everybody who was told of it, if it is held.
  void withdraw(PayloadId payload, std::string_view why);
  /// Nobody needs the payload any more, or there is no more room for it. With the full payload the store gives up the
  /// version. Returns the members that were assigned it, and are to be assigned another.
  std::vector<Member*> forget(PayloadId payload);

  // ---- plans

  /// Of a payload that is held; made if there is none.
  [[nodiscard]] PayloadPlan& plan_of(PayloadId payload);
  /// Null if there is none.
  [[nodiscard]] PayloadPlan* find_plan(PayloadId payload);
  /// The one that most members get; null if nobody gets the version.
  [[nodiscard]] const PayloadPlan* main_plan() const;
  [[nodiscard]] std::map<PayloadId, PayloadPlan>& plans() { return plans_; }
  [[nodiscard]] const std::map<PayloadId, PayloadPlan>& plans() const { return plans_; }
  /// All members that some plan has.
  [[nodiscard]] std::set<PeerId> planned() const;
  /// Nobody asks about that plan any more.
  void end_plan(PayloadId payload);

  /// The publication has ended. Standing changes now, and only now.
  void handle_end(Instant now);

 private:
  /// A payload is complete, whether or not it was begun. Returns the message for the members that were told of its
  /// beginning, if it was begun. Errors: as grow(), kInvalidArgument for a manifest that is open.
  [[nodiscard]] Result<std::optional<wire::Message>> complete(const MadePayload& made);
  /// Returns the message for the members that were told of it. Errors: as grow().
  [[nodiscard]] Result<wire::Message> take_growth(const MadePayload& grown);
  /// Nobody is sent the payload any more, or assigned it. Returns the members that were.
  std::vector<Member*> drop(PayloadId payload, std::string_view why);
  /// Everyone who was told of the payload is sent this.
  void tell(PayloadId payload, const wire::Message& message);

  PublicationContext& context_;
  const Version version_;
  std::shared_ptr<const Manifest> manifest_;
  std::set<PayloadId> making_;   // that were asked for
  std::set<PayloadId> useless_;  // cannot be made, or would not be small
  std::set<PayloadId> put_off_;  // could not be made, and may be later
  std::map<PayloadId, PayloadPlan> plans_;
};

}  // namespace weightcast
