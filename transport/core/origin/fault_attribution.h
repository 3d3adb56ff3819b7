#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "transport/core/action.h"
#include "transport/core/edge/uploads.h"
#include "transport/core/origin/membership.h"
#include "transport/core/plan/plan.h"

namespace weightcast {

/// Decides who is to blame for what children report of their parents, and changes scores, standings and, for the rest
/// of a publication, who may relay. Pure. Called by the Publications that owns it: one for all publications.
///
/// A report counts if the plan has that parent feed that child. "Leaf" is for the rest of this publication; "blamed" is
/// a failed transfer for the score and a fault for the standing, which changes when the publication ends.
///
///   report                 suspicion                                         blamed          leaf
///   CLOSED                 the parent                                        parent          parent
///   CORRUPT                the parent                                        parent          parent
///   NOT_AVAILABLE          nobody                                            -               parent
///   SLOW                   either end of the edge                            parent, if the  both, if they relay, so
///                                                                            child is        that nobody waits behind
///                                                                            believed        a slow edge
///   SILENT                 the parent                                        parent, if the  parent, if the child is
///                                                                            child is        believed
///                                                                            believed
///   SLOW of a 2nd parent   the child's own link                              child           child
///   SILENT of a 2nd one    as above, but both parents may have stopped       -               child
///   STARVED, it left       the parent, if it has more by its own word, or     parent, if it   parent
///                          waits for one that does not starve                has more, or
///                                                                            the child is
///                                                                            believed
///   STARVED, it stays      below                                             below           below
///   WAITING                nobody: it exonerates the child                   -               -
///
/// A report of starvation about a parent that the plan does not name exonerates the child, and accuses nobody: a child
/// may move before the plan does.
///
/// The origin is never blamed. If more than one child, and more than a quarter of its children, call it slow, its own
/// uplink is the cause, and none of them becomes a leaf for that. If half of the members are leaves, nobody else
/// becomes one. A child is believed if it relays, or is the second one to say so. A child that became a leaf is not.
///
/// Starvation. When a publication is held up, everybody below that place gets nothing, and honest members say so
/// (STARVED: my parent says that it has nothing more; WAITING: it is late). So the relay to blame is the one whose
/// child starves and which does not starve itself:
///
///   a child says STARVED of a parent for kStarvedFor, and the parent,             the parent is a leaf; blamed, if
///   which was heard since, does not starve by its own word                        the child is believed or the
///                                                                                 parent's own word is disproved
///   a child says of the origin that it starves, while the origin's chunks         the child is blamed, and a leaf
///   of that stripe left to it: seen kReportsDisproved times in a row
///
/// Whoever starves names its last chunk (`starving`). The word of a relay counts for nothing once its last chunk has
/// moved on kMovesDisproved times while its child got none: an honest relay has passed those chunks on.
/// The parent's word is disproved if it has installed the version, if the origin has sent it more chunks than its
/// heartbeats name, or if those name more than the child has. Heartbeats count all stripes together. So in a plan of
/// several stripes only a parent that has everything has more for certain.
///
/// Cleared: a standing, as PeerStanding says; all else about a publication with forget().
/// Invariant: scores and standings of members change here alone.
class FaultAttribution {
 public:
  static constexpr Duration kStarvedFor = std::chrono::milliseconds(400);
  static constexpr std::uint32_t kReportsDisproved = 3;
  static constexpr std::uint32_t kMovesDisproved = 3;

  struct Report {
    PayloadId payload{};
    PeerId child{};
    PeerId parent{};
    std::uint32_t stripe = 0;
    wire::FaultKind kind = wire::FAULT_KIND_UNSPECIFIED;
    bool stays = false;   ///< with that parent
    Duration starving{};  ///< since the last chunk; of STARVED and WAITING, if it stays
  };

  FaultAttribution(Membership& members, const Uploads& uploads, ActionQueue& actions)
      : members_(members), uploads_(uploads), actions_(actions) {}

  /// Returns whether that plan is to be repaired: somebody in it is a leaf now.
  [[nodiscard]] bool handle_report(Instant now, const Plan& plan, const Report& report);
  /// A member was fed by these, at this rate.
  void handle_fed(Instant now, const std::vector<PeerId>& parents, Rate rate);
  /// The publication of a version has ended, of which these were planned: standings change now, and only now.
  void handle_publication_end(Version version, const std::set<PeerId>& planned);

  /// Whether it may not relay this payload.
  [[nodiscard]] bool is_leaf(PayloadId payload, PeerId member) const;
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
    std::uint64_t parent_was_sent = 0;  // by the origin, when it was said first
    Instant checked_at{};               // when was_sent was looked up last
    std::uint64_t was_sent = 0;         // by the origin, in this stripe
    std::uint32_t disproved = 0;        // in a row
    Instant parent_since{};             // the parent's last chunk, by the parent's own word
    std::uint32_t parent_moves = 0;     // how often that has moved on
    bool judged = false;                // blamed and told, once
  };
  /// What is known of one payload's edges.
  struct Case {
    std::set<PeerId> leaves;
    std::map<PeerId, std::set<PeerId>> accused_by;                  // by which children
    std::map<PeerId, std::set<PeerId>> slow_parents;                // whom a child called slow or silent
    std::map<std::pair<PeerId, std::uint32_t>, Starving> starving;  // by child and stripe
  };

  [[nodiscard]] bool handle_slow_edge(Instant now, const Plan& plan, const Report& report, Case& known);
  [[nodiscard]] bool handle_starvation(Instant now, const Plan& plan, const Report& report, Case& known);
  /// The child has left its parent after Timeouts::starvation.
  [[nodiscard]] bool handle_starved_child_left(Instant now, const Plan& plan, const Report& report, Case& known);
  /// Takes down what the child says.
  Starving& note_starving(Instant now, const Plan& plan, const Report& report, Case& known) const;
  /// A child says that the origin feeds it nothing. Returns whether the origin's own count of chunks disproves it.
  [[nodiscard]] bool is_disproved(Instant now, const Plan& plan, const Report& report, Starving& starving) const;
  /// The word of `member` that it starves in this stripe; null if it has not said so lately.
  [[nodiscard]] static const Starving* word_of(Instant now, const Case& known, PeerId member, std::uint32_t stripe);
  /// Whether the parent has got chunks again and again by its own word, while its child got none.
  [[nodiscard]] static bool keeps_chunks(const Starving& parent, Starving& child);
  /// Whether the child's word says something about its parent.
  [[nodiscard]] static bool believes(const Plan& plan, Case& known, PeerId child, PeerId parent);
  [[nodiscard]] static bool make_leaf(const Plan& plan, Case& known, PeerId member);
  /// Whether the origin's own uplink is slow, by the word of those that it feeds.
  [[nodiscard]] bool origin_is_slow(const Plan& plan, const Case& known, PayloadId payload) const;
  /// By its own word it has more than it passes on to a child that has got nothing since then.
  [[nodiscard]] static bool has_more(const Plan& plan, PayloadId payload, const Member& parent, const Member& child,
                                     Instant since);
  void blame(Instant now, PeerId member, PeerFault fault);

  Membership& members_;
  const Uploads& uploads_;
  ActionQueue& actions_;
  std::map<PayloadId, Case> cases_;
};

}  // namespace weightcast
