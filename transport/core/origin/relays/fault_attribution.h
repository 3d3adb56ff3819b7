#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/core/action.h"
#include "transport/core/edge/uploads.h"
#include "transport/core/origin/members/membership.h"
#include "transport/core/origin/members/rate_probes.h"
#include "transport/core/origin/relays/complaints.h"
#include "transport/core/origin/relays/pace_watch.h"
#include "transport/core/plan/plan.h"

namespace weightcast {

/// Decides who is to blame for what children report of their parents, and changes scores, standings and, for the rest
/// of a publication, who may relay. Pure. Owned by an OriginCore, and called by its Publications: one for all of them.
///
/// Any report may be a lie. So a report is a complaint at most, of one child of one parent, and Complaints says what a
/// complaint is worth: one keeps the two apart, two children convict the parent, and a child that complains of
/// everybody is the suspect, and a leaf. Convicted: "blamed", which is a failed transfer for the score and a fault for
/// the standing, and a "leaf", which feeds nobody for the rest of this publication. A standing changes when the
/// publication ends.
///
///   report                 is a complaint                                      else
///   CLOSED                 unless the origin has lost the parent, too          then the parent is convicted
///   CORRUPT, SILENT        always
///   NOT_AVAILABLE          never                                               the parent feeds this child no more
///   SLOW                   always                                              the child is a leaf, too, if it relays,
///                                                                              so that nobody waits behind a slow edge
///   STARVED, it left       if the parent has more by its own word, or waits
///                          for one that does not starve
///   STARVED, it stays      see below                                           it exonerates the child
///   WAITING                see below                                           it exonerates the child
///
/// A report counts if the plan has that parent feed that child. Of another parent it accuses nobody, and exonerates the
/// child if nothing comes from there: a child may move before the plan does.
///
/// The origin is never blamed. If more than one child, and more than a quarter of its children, call it slow, its own
/// uplink is the cause, and none of them becomes a leaf for that. If half of the members are leaves, nobody else
/// becomes one. A leaf is a witness to damage and to
/// starvation alone, because behind a slow edge every parent seems slow. Who is a suspect, or was convicted, is no
/// witness for the rest of this publication; it gets other parents.
///
/// Starvation. When a publication is held up, everybody below that place gets nothing, and honest members say so
/// (STARVED: my parent says that it has nothing more; WAITING: it is late). So the edge at fault is the one below which
/// all starve, and above which nobody does:
///
///   a child says STARVED of a parent for kStarvedFor, and the parent,         a complaint of the child
///   which was heard since, does not starve by its own word
///   a child says WAITING or STARVED of a parent whose last chunk, by its      a complaint of the child
///   own word, has moved on kMovesDisproved times since the child's
///   a child says that it has starved since a time, and the origin's chunks    the child is blamed, and a leaf
///   of that stripe left to it since then: seen kReportsDisproved times,
///   whatever parents and times it names in between
///
/// Delay. PaceWatch finds edges that are slow without anybody saying so, from heartbeats alone. Each is a complaint of
/// the child; a relay that lags behind the origin itself becomes a leaf.
///
/// Cleared: a standing, as PeerStanding says; complaints, as Complaints says; an offence by the word of others, except
/// damage, by a later publication in which the member took part and was not blamed; all else about a publication with
/// forget(). Invariant: scores, standings and offences of members change here alone.
class FaultAttribution {
 public:
  static constexpr Duration kStarvedFor = std::chrono::milliseconds(400);
  static constexpr std::uint32_t kReportsDisproved = 3;
  static constexpr std::uint32_t kMovesDisproved = 3;
  static constexpr Duration kPacesEvery = std::chrono::milliseconds(500);

  struct Report {
    PayloadId payload{};
    PeerId child{};
    PeerId parent{};
    std::uint32_t stripe = 0;
    wire::FaultKind kind = wire::FAULT_KIND_UNSPECIFIED;
    bool stays = false;   ///< with that parent
    Duration starving{};  ///< since the last chunk; of STARVED and WAITING, if it stays
  };

  /// All outlive it. `rates`: what is known of the origin's uplink, without which plans predict nothing.
  FaultAttribution(Membership& members, const Uploads& uploads, ActionQueue& actions, const RateProbes& rates)
      : members_(members), uploads_(uploads), actions_(actions), rates_(rates) {}

  /// Returns whether that plan is to be repaired: somebody in it is a leaf now, or to be kept apart from its parent.
  [[nodiscard]] bool handle_report(Instant now, const Plan& plan, const Report& report);
  /// A member's heartbeat, of a payload that is not open. `missing`: by stripe of the plan. Returns the same.
  [[nodiscard]] bool handle_progress(Instant now, const Plan& plan, PayloadId payload, PeerId member,
                                     std::vector<std::uint32_t> missing);
  /// A member says at which pace it has received a payload.
  void handle_received(PayloadId payload, PeerId member, double chunks_per_s);
  /// The plan had `parent` feed `child` until now.
  void handle_moved(Instant now, PayloadId payload, PeerId parent, PeerId child);
  /// The origin has lost that member itself.
  void handle_lost(Instant now, PeerId member);
  /// A member was fed by these, at this rate.
  void handle_fed(Instant now, const std::vector<PeerId>& parents, Rate rate);
  /// The publication of a version has ended, of which these were planned: standings change now, and only now.
  void handle_publication_end(Version version, const std::set<PeerId>& planned);
  /// What the member itself did: for its status. `by_word`: others say so, and a later publication may clear it of
  /// that.
  void note_offence(PeerId member, std::string what, bool by_word = false);

  /// Whether it may not relay this payload.
  [[nodiscard]] bool is_leaf(PayloadId payload, PeerId member) const;
  /// Who is not to feed whom, for plans of this payload.
  [[nodiscard]] std::vector<ApartPair> apart(PayloadId payload) const;
  /// One of two members is at fault, and `member` is one of them: a new plan places it behind others.
  [[nodiscard]] bool in_dispute(PeerId member) const { return complaints_.in_dispute(member); }
  /// How many members complain of `member`, for status.
  [[nodiscard]] std::size_t complaints_of(PeerId member) const { return complaints_.count_of(member); }
  /// Of how many it complains.
  [[nodiscard]] std::size_t complaints_by(PeerId member) const { return complaints_.count_by(member); }
  /// What is remembered of a member's complaints over a restart. See Complaints.
  [[nodiscard]] Complaints::Author complaints_record(PeerId child) const { return complaints_.record(child); }
  void restore_complaints(PeerId child, Complaints::Author author) { complaints_.restore(child, std::move(author)); }
  [[nodiscard]] std::uint64_t complaints_made() const { return complaints_.made_count(); }
  /// Nobody asks about this payload any more.
  void forget(PayloadId payload) { cases_.erase(payload); }

 private:
  /// One child's word that nothing comes.
  struct Starving {
    PeerId parent{};
    bool planned = false;  // the plan has that parent feed it
    bool accuses = false;
    Instant since{};     // the last chunk
    Instant first_at{};  // when it was said first, of this parent
    Instant last_at{};
    Instant parent_since{};          // the parent's last chunk, by the parent's own word
    std::uint32_t parent_moves = 0;  // how often that has moved on
  };
  /// What the origin itself has sent to a child that says that it starves. Apart from that word, which may change.
  struct Sent {
    Instant at{};  // of the last look
    std::uint64_t chunks = 0;
    std::uint32_t disproved = 0;  // looks
  };
  /// What is known of one payload's edges.
  struct Case {
    std::set<PeerId> leaves;
    std::set<PeerId> distrusted;                                    // suspects, and who was convicted: no witnesses
    std::map<PeerId, std::set<PeerId>> cut;                         // parents that are to feed it no more, by child
    std::map<PeerId, std::set<PeerId>> slow_parents;                // whom a child called slow or silent
    std::map<std::pair<PeerId, std::uint32_t>, Starving> starving;  // by child and stripe
    std::map<std::pair<PeerId, std::uint32_t>, Sent> sent;          // by child and stripe
    std::map<std::pair<PeerId, PeerId>, Instant> moved;             // edges that the plan had, and until when
    std::map<PeerId, std::pair<Instant, Instant>> far_behind;       // leaves that get next to nothing: from, until
    PaceWatch paces;
    Instant paced_at{};
  };

  [[nodiscard]] bool handle_slow_edge(Instant now, const Plan& plan, const Report& report, Case& known);
  [[nodiscard]] bool handle_starvation(Instant now, const Plan& plan, const Report& report, Case& known);
  /// The child has left its parent after Timeouts::starvation.
  [[nodiscard]] bool handle_starved_child_left(Instant now, const Plan& plan, const Report& report, Case& known);
  [[nodiscard]] bool handle_closed(Instant now, const Plan& plan, const Report& report, Case& known);
  /// `child` says that `parent` does it wrong. Returns whether the plan is to be repaired.
  [[nodiscard]] bool complain(Instant now, const Plan& plan, Case& known, PeerId child, PeerId parent, PeerFault fault,
                              std::string_view what);
  /// `child` gets another parent in this publication, and nobody is accused. Returns whether that is new.
  [[nodiscard]] static bool cut(Case& known, PeerId child, PeerId parent);
  [[nodiscard]] bool convict(Instant now, const Plan& plan, Case& known, PeerId parent, PeerFault fault,
                             std::string_view what);
  /// It complains of everybody.
  [[nodiscard]] bool suspect(const Plan& plan, Case& known, PeerId child);
  /// Takes down what the child says.
  static Starving& note_starving(Instant now, const Plan& plan, const Report& report, Case& known);
  /// A child says that nothing comes. Returns whether the origin's own count of chunks disproves it.
  [[nodiscard]] bool is_disproved(Instant now, const Plan& plan, const Report& report, Case& known) const;
  /// The word of `member` that it starves in this stripe; null if it has not said so lately.
  [[nodiscard]] static const Starving* word_of(Instant now, const Case& known, PeerId member, std::uint32_t stripe);
  /// Whether the parent has got chunks again and again by its own word, while its child got none.
  [[nodiscard]] static bool keeps_chunks(const Starving& parent, Starving& child);
  /// Something was seen at `now`, and `seen` says from when until when before. Whether it has lasted.
  [[nodiscard]] static bool lasts(Instant now, std::pair<Instant, Instant>& seen);
  [[nodiscard]] static bool make_leaf(const Plan& plan, Case& known, PeerId member);
  /// Whether the origin's own uplink is slow, by the word of those that it feeds.
  [[nodiscard]] bool origin_is_slow(const Plan& plan, const Case& known, PayloadId payload) const;
  /// By its own word it has more than it passes on to a child that has got nothing since then.
  [[nodiscard]] static bool has_more(const Plan& plan, PayloadId payload, const Member& parent, const Member& child);
  void blame(Instant now, PeerId member, PeerFault fault);
  [[nodiscard]] std::string name_of(PeerId member) const;
  /// Whether the plan's prediction for the member at that place rests on rates that are known.
  [[nodiscard]] bool rates_known(const Plan& plan, std::size_t at) const;

  Membership& members_;
  const Uploads& uploads_;
  ActionQueue& actions_;
  const RateProbes& rates_;
  Complaints complaints_;
  std::map<PayloadId, Case> cases_;
};

}  // namespace weightcast
