#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "transport/core/action.h"
#include "transport/core/edge/links.h"
#include "transport/core/origin/members/membership.h"

namespace weightcast {

/// Finds out who can dial whom, because only who can be dialled can feed a child. Pure. Called by the OriginCore that
/// owns it.
///
///   who is dialled                          by whom                    when
///   a member that has joined                the origin                 once
///   whom somebody cannot dial               each other member, once    at once; not all of a fleet in which many can
///   each other member, once                 who cannot dial one whom   at once; the same
///                                           others can
///   whom a member cannot dial               that member                again and again, after pauses that double from
///                                                                      kRetryMin to kRetryMax, and when either joins
///
/// At most kAskedMax dials are under way that a member was asked for. The origin believes a member about its own dials,
/// because a lie only keeps the member itself from being fed. Nobody is blamed for them.
/// Invariant: Member::unreachable, cannot_dial, cannot_reach and reaches_nobody are set here alone.
class Reachability {
 public:
  static constexpr Duration kRetryMin = std::chrono::seconds(5);
  static constexpr Duration kRetryMax = std::chrono::minutes(10);
  static constexpr std::size_t kAskedMax = 64;
  /// So many dials of a member tell enough of it.
  static constexpr std::size_t kTellingDials = 8;

  Reachability(Membership& members, ConnIds& conn_ids, ActionQueue& actions)
      : members_(members), conn_ids_(conn_ids), actions_(actions) {}

  /// `member` has joined. It counts as reachable, and is dialled unless it is `leaf_only`.
  void handle_joined(Instant now, Member& member);
  void handle_connected(ConnId conn);
  /// Whether `conn` was a probe.
  [[nodiscard]] bool is_probe(ConnId conn) const { return probes_.contains(conn); }
  /// A probe failed. Returns whether a member is unreachable now, so that plans have to be repaired.
  [[nodiscard]] bool handle_closed(Instant now, ConnId conn, std::string_view why);
  /// `dialler` has tried another one. Returns whether plans have to be repaired.
  [[nodiscard]] bool handle_probed(Instant now, Member& dialler, const wire::Probed& probed);
  void handle_timeout(Instant now);
  [[nodiscard]] std::optional<Instant> poll_deadline() const;
  /// Tells a member who cannot dial it, if that has changed.
  void tell(const Member& member);
  /// Keeps nothing of members that are known no more.
  void forget_lost();

 private:
  /// "the origin, w-2 and 3 more cannot dial it at 10.0.0.5:7402: timed out"; "" where nobody says so.
  [[nodiscard]] std::string undialled(const Member& target) const;

  using Pair = std::pair<PeerId, PeerId>;  // who dials, and whom
  struct Examination {
    PeerId member{};
    bool dials = false;  // it dials others; else others dial it
    PeerId next{};       // the first of the others that was not asked for
  };

  [[nodiscard]] bool handle_unreached(Instant now, Member& dialler, Member& target, std::string why, bool was_asked);
  [[nodiscard]] bool handle_reached(Instant now, Member& dialler, Member& target);
  void examine(PeerId member, bool dials);
  /// Asks for the next dial of the first examination, or ends it.
  void go_on_examining(Instant now);
  [[nodiscard]] bool is_examined_enough(const Examination& examination, const Member& member) const;
  /// Of those whom it cannot reach, how many others can.
  [[nodiscard]] std::size_t contested(const Member& dialler) const;
  void ask(Instant now, const Member& dialler, const Member& target);
  /// Asks for all that is due, as far as kAskedMax allows.
  void ask_on(Instant now);
  /// `at` absent: not at all.
  void set_retry(const Pair& pair, UnreachedPeer& unreached, std::optional<Instant> at);
  void retry_later(Instant now, const Pair& pair, UnreachedPeer& unreached);
  /// What was seen of it says nothing of where it is now.
  void forget_seen(PeerId member);

  Membership& members_;
  ConnIds& conn_ids_;
  ActionQueue& actions_;
  std::map<ConnId, PeerId> probes_;             // dialled by the origin itself
  std::map<Pair, Instant> asked_;               // and until when an answer is waited for
  std::set<std::pair<Instant, Pair>> retries_;  // of UnreachedPeer::retry_at
  std::deque<Examination> examinations_;
  std::set<std::pair<PeerId, bool>> examined_;         // or being examined, since they joined
  std::map<PeerId, std::set<PeerId>> reached_by_;      // by who was dialled
  std::map<PeerId, std::set<PeerId>> reaches_;         // the same by who dialled
  std::map<PeerId, std::set<PeerId>> not_reached_by_;  // by who was dialled: the others' Member::cannot_reach
  std::map<PeerId, std::string> told_;                 // undialled(), as a member was told
};

}  // namespace weightcast
