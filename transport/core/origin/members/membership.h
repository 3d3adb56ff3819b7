#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/digest/checksum.h"
#include "base/ids.h"
#include "base/peer_identity.h"
#include "base/settings/words.h"
#include "base/time.h"
#include "base/units.h"
#include "proto/limits.h"
#include "transport/core/budget.h"
#include "transport/core/origin/members/link_estimate.h"
#include "transport/core/origin/members/peer_score.h"
#include "transport/core/origin/members/peer_standing.h"

namespace weightcast {

/// How a worker came to a version.
enum class CatchUpPath : std::uint8_t {
  kUnknown,  ///< before this origin started, or before it joined
  kFull,
  kPacked,  ///< full, but coded
  kDirect,  ///< by the patch between two neighbours
  kFolded,  ///< by one patch over several versions
  kChain,   ///< by stored patches in turn
};
constexpr Words<6> words_of(CatchUpPath) { return {"", "full", "packed", "direct", "folded", "chain"}; }

/// What a member is doing, for status.
enum class MemberState : std::uint8_t {
  kIdle,       ///< has the latest version
  kReceiving,  ///< a version arrives
  kStale,      ///< has an older version, and receives none
  kFailed,     ///< could not install the latest version
  kForeign,    ///< has a version of another run
  kStandby,
  kLost,
};
constexpr Words<7> words_of(MemberState) {
  return {"idle", "receiving", "stale", "failed", "foreign", "standby", "lost"};
}

/// One that a member cannot dial, by its own word.
struct UnreachedPeer {
  std::string why;                  ///< in a few words
  Duration pause{};                 ///< before the next attempt
  std::optional<Instant> retry_at;  ///< absent while it is tried, or one of the two is not connected
  Instant tried_at{};               ///< when the last attempt failed
};

/// One worker as the origin knows it. The origin keeps a lost worker for a while, and finds its number and history
/// again by its name.
struct Member {
  PeerId id{};
  std::string name;
  std::uint64_t incarnation = 0;
  ConnId conn{};                         ///< zero while it is not connected
  std::uint32_t protocol = 0;            ///< that it speaks with this origin; 0: it has not joined since the start
  Duration heartbeat{};                  ///< how often it was told to report
  std::optional<PeerIdentity> identity;  ///< who it has proven to be; absent where connections are not encrypted
  std::string host;
  std::uint16_t port = 0;
  Rate uplink{};  ///< as it says: what is configured
  Rate downlink{};
  LinkEstimates estimates;  ///< what is known of its link besides
  Rate last_received{};     ///< its last payload of kMeasuredBytesMin or more, from whomever; without a limit: none
  std::optional<Instant> probe_due;              ///< when its link is to be probed; absent: as soon as it can be
  double unpack_bytes_per_s = 0;                 ///< of packed payloads, as it says; 0: not known
  bool leaf_only = false;                        ///< it says that it cannot relay
  bool unreachable = false;                      ///< the origin dialled it in vain, and no other worker has reached it
  std::string cannot_dial;                       ///< why the origin could not; "" if it could
  std::map<PeerId, UnreachedPeer> cannot_reach;  ///< no plan has these feed it
  bool reaches_nobody = false;                   ///< of several whom others reach: it is fed by the origin alone
  bool standby = false;

  Version installed{};
  /// What it has is of another run. The origin plans nothing for it and does not await it. Once this run has a version,
  /// the origin tells it to begin this run with nothing, and it joins anew.
  RunId other_run{};
  /// Its installed version is of this run, or of none that it knows, but is not this origin's: greater than any, or the
  /// latest with other bytes. The origin plans nothing for it and does not await it, until it publishes a greater
  /// version.
  bool foreign = false;
  Version behind{};        ///< the latest one, if it joined without that
  Instant behind_since{};  ///< when it first did
  PayloadId receiving{};
  PayloadId assigned{};  ///< what it was told to take last, on this connection
  CatchUpPath assigned_path = CatchUpPath::kUnknown;
  CatchUpPath installed_path = CatchUpPath::kUnknown;
  std::optional<Checksum> installed_digest;  ///< of the version that it joined with; absent if it named none
  std::uint64_t installed_bytes = 0;         ///< of the payload that brought it; 0 if that is not known
  bool base_unusable = false;                ///< only the full payload as it is can be installed, until one was
  Version refused{};                         ///< up to this one it refuses full payloads: it has had newer versions
  std::uint32_t chunks_verified = 0;
  std::uint32_t chunks_total = 0;
  Instant progress_at{};  ///< when it said so
  double receive_bytes_per_s = 0;
  std::optional<Instant> slow_since;  ///< far below what is usual, with a payload that the origin has forgotten
  Duration slow_for = std::chrono::seconds(10);  ///< after which it gets another
  std::uint64_t bytes_received = 0;
  std::uint64_t bytes_sent = 0;
  Instant heard_at{};  ///< of a lost one: when it was
  Version failed{};    ///< the version that it could not install, if it has installed none since
  PeerScore score;     ///< of its forwarding
  PeerStanding standing;
  std::uint64_t revocations_sent = 0;  ///< number of the list that it was sent last, on this connection
  std::string offence;                 ///< the last thing that the origin holds against it, for status; "": nothing
  bool offence_by_word = false;        ///< a later publication may clear it of that
  bool offended = false;               ///< in the publication that runs
  std::string last_error;
  bool forgotten = false;  ///< by command: it goes as soon as no plan has it, unless it joins again
  Budget reports{kReportsPerSecond, kReportsBurst};  ///< of parents
  Budget joins{kJoinsPerSecond, kJoinsBurst};
  Budget strays{kJoinsPerSecond, kJoinsBurst};  ///< subscriptions to what it has no place for

  [[nodiscard]] bool connected() const { return conn != ConnId{}; }
  /// Connected and meant to serve.
  [[nodiscard]] bool active() const { return connected() && !standby && !foreign && other_run == kNoRun; }
  /// Whether what it said of its progress is of a version that it does not have yet.
  [[nodiscard]] bool is_receiving() const { return connected() && receiving.version > installed; }
  [[nodiscard]] MemberState state(Version latest) const;
  /// Says that it has received something of this origin's.
  [[nodiscard]] bool has_received() const { return chunks_verified > 0 || (installed != kNoVersion && !foreign); }
  /// Whether the origin knows more of it than that it joined.
  [[nodiscard]] bool has_history() const {
    return has_received() || !score.empty() || !(standing.record() == PeerStandingRecord{});
  }
  /// What plans take; without a limit: not known.
  [[nodiscard]] Rate planned_uplink() const { return planned_rate(uplink, estimates.uplink); }
  [[nodiscard]] Rate planned_downlink() const { return planned_rate(downlink, estimates.downlink); }
  /// Of its forwarding, against its own line rate.
  [[nodiscard]] double score_at(Instant now) const { return score.score(now, uplink.limited() ? uplink : Rate{}); }
  /// May stand between others and the origin.
  [[nodiscard]] bool can_relay() const {
    return !leaf_only && !unreachable && standing.standing() != Standing::kRolloutOnly;
  }
};

/// The origin's members by number, name and connection. Pure.
/// Invariants: a name has one number until it is forgotten; a number is never used again; a connection belongs to at
/// most one member.
class Membership {
 public:
  /// The member of that name, made if it is new.
  Member& by_name(const std::string& name);
  /// Its number; absent if it is not known.
  [[nodiscard]] std::optional<PeerId> id_of(const std::string& name) const;
  [[nodiscard]] Member* find(PeerId id);
  [[nodiscard]] const Member* find(PeerId id) const;
  [[nodiscard]] Member* by_conn(ConnId conn);
  [[nodiscard]] const Member* by_conn(ConnId conn) const;

  void connect(Member& member, ConnId conn);
  void disconnect(Member& member);

  /// Forgets lost members for whom `may_go` holds:
  ///
  ///   Member::forgotten                      at once
  ///   never received or forwarded anything   after kKeepStranger; the longest lost beyond kStrangersMax
  ///   received or forwarded something        after kKeepLost; the longest lost beyond kLostMax
  ///   forwarded badly                        the longest lost beyond kLostMax, so that a new start does not exonerate
  ///                                          them
  ///
  /// Returns when the next is to be forgotten.
  template <typename MayGo>
  std::optional<Instant> forget_lost(Instant now, MayGo may_go);

  static constexpr Duration kKeepStranger = std::chrono::minutes(1);
  static constexpr Duration kKeepLost = std::chrono::hours(1);
  static constexpr std::size_t kStrangersMax = 256;
  static constexpr std::size_t kLostMax = 4096;

  [[nodiscard]] const std::map<PeerId, Member>& all() const { return members_; }
  [[nodiscard]] std::map<PeerId, Member>& all() { return members_; }
  [[nodiscard]] std::uint32_t active_count() const;
  [[nodiscard]] std::size_t connected_count() const { return conns_.size(); }
  [[nodiscard]] std::size_t lost_count() const { return members_.size() - conns_.size(); }

 private:
  void erase(PeerId id);

  std::map<PeerId, Member> members_;
  std::unordered_map<std::string, PeerId> ids_;
  std::unordered_map<ConnId, PeerId> conns_;
  std::uint32_t last_id_ = 0;
};

template <typename MayGo>
std::optional<Instant> Membership::forget_lost(Instant now, MayGo may_go) {
  std::vector<std::pair<Instant, PeerId>> strangers, known;
  std::vector<PeerId> commanded;
  for (const auto& [id, member] : members_) {
    if (member.connected() || !may_go(id)) continue;
    if (member.forgotten) {
      commanded.push_back(id);
      continue;
    }
    (member.has_history() ? known : strangers).push_back({member.heard_at, id});
  }
  for (const PeerId id : commanded) erase(id);
  std::optional<Instant> next;
  const auto forget = [&](std::vector<std::pair<Instant, PeerId>>& lost, std::size_t most, Duration keep) {
    std::sort(lost.begin(), lost.end());
    std::size_t left = lost.size();
    for (const auto& [since, id] : lost) {
      const bool bad = members_.at(id).standing.standing() != Standing::kSeed;
      if (left > most || (!bad && now - since >= keep)) {
        erase(id);
        --left;
      } else if (!bad) {
        next = next ? std::min(*next, since + keep) : since + keep;
      }
    }
  };
  forget(strangers, kStrangersMax, kKeepStranger);
  forget(known, kLostMax, kKeepLost);
  return next;
}

}  // namespace weightcast
