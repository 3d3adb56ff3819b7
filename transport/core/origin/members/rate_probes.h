#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "transport/core/action.h"
#include "transport/core/burst_meter.h"
#include "transport/core/origin/members/link_estimate.h"
#include "transport/core/origin/members/membership.h"
#include "transport/core/origin/members/sending_rate.h"

namespace weightcast {

/// Measures the links between the origin and its members while they are free, and keeps what transfers say of the
/// origin's own uplink.
///
/// A probe of a member is bursts of padding on its control connection, first towards the member and then from it, of
/// 64 KiB, 256 KiB, 1 MiB and 4 MiB, until the second half of one took kLastedMin. A burst that is slower than what is
/// known by kMissFactor may have lost a packet: while there is time it is repeated, and the better of the two counts. A
/// sender with a configured uplink sends no more in a burst than it may in kBurstOfCap. One member is probed at a time:
/// who has waited longest. A joint probe is bursts to up to kTogetherMax members at once, which fill the origin's
/// uplink. Its rate is what they have answered for over the time since the first burst left, at the best moment from
/// which half of them have answered. It comes after the probes of members, but first where the uplink is doubted.
///
///   probe of                                                 when
///   a member of which a direction is not configured          it has joined; again every kEvery
///   both ends of an edge that missed what the plan expected  after that publication
///   several members, unless the origin's uplink is           twice as many have joined as the last time; the uplink is
///   configured                                               doubted; kRetry after a probe that half did not answer
///
/// A probe of a member concerns its own link alone. The rate towards it is its own word, the rate from it is what the
/// origin sees. So a member that lies or dawdles changes no other member's estimate. Of the origin's own uplink no
/// member says a rate. Nobody waits for those that answer late. One that answers early adds its burst, which is at most
/// twice the middle one: of three and more members that is at most half of what the others answer for. Of two, one can
/// make the uplink look fast, and with one there is nobody whom it could hurt. What publications have sent of chunks
/// counts, too, by the origin's own count.
/// Pure. Owned by an OriginCore. Invariant: what a publication has disturbed does not count.
class RateProbes {
 public:
  static constexpr std::uint32_t kBytesFirst = 64 * 1024;
  static constexpr Duration kLastedMin = std::chrono::milliseconds(30);
  /// All bursts of a probe together. Who has not answered by then is asked again after kEvery.
  static constexpr Duration kAnswerMax = std::chrono::seconds(5);
  static constexpr Duration kEvery = std::chrono::minutes(10);
  /// Before the next probe of a member whose connection ended in one.
  static constexpr Duration kRetry = std::chrono::seconds(30);
  static constexpr Duration kBurstOfCap = std::chrono::milliseconds(60);
  static constexpr std::size_t kTogetherMax = 8;

  /// All outlive it. `origin_cap`: what is configured.
  RateProbes(Membership& members, ActionQueue& actions, Rate origin_cap)
      : members_(members), actions_(actions), origin_cap_(origin_cap) {}

  /// The member has joined or said something: it is probed if it is time to.
  void consider(Instant now, const Member& member);
  /// It did not reach what the plan expected, or did so much better: it is probed again.
  void doubt(PeerId member) { wanted_.insert(member); }
  /// The same of the origin's uplink. Until it is measured, plans take what was known.
  void doubt_origin();
  /// The member's connection has ended, or is another one.
  void handle_lost(PeerId member);
  /// Who is not to be probed now.
  struct Traffic {
    bool published = false;   ///< links are in use: nobody
    std::set<PeerId> others;  ///< else these: the last that receive, and who feeds them
  };
  /// Begins the next probe, and gives up one that is not answered, or that a publication disturbs. To be called as soon
  /// as something is published.
  void advance(Instant now, Traffic traffic);
  /// Whether advance() has something to do once nothing is published.
  [[nodiscard]] bool waits() const { return !wanted_.empty() || !running_.empty() || together_ || together_wanted_; }
  void handle_probed(Instant now, Member& member, const wire::RateProbed& probed);
  /// So many bytes of chunks have left the origin since its start. To be told every now and then.
  void handle_sent(Instant now, std::uint64_t bytes_sent);

  /// What is configured is `cap` from now on.
  void set_origin_cap(Rate cap) { origin_cap_ = cap; }
  /// What plans take for the origin's own uplink; without a limit: not known.
  [[nodiscard]] Rate planned_origin_uplink() const { return planned_rate(origin_cap_, origin_); }
  /// What was measured of it.
  [[nodiscard]] const LinkEstimate& origin_uplink() const { return origin_; }
  void restore_origin_uplink(Rate rate) {
    origin_ = LinkEstimate(rate);
    origin_before_ = origin_.rate();
  }
  /// How many probes have ended: estimates may have changed.
  [[nodiscard]] std::uint64_t ended_count() const { return ended_count_; }
  /// When the origin last sent chunks at a tenth of its uplink's rate or more.
  [[nodiscard]] Instant busy_at() const { return busy_at_; }

 private:
  /// A burst under way, to or from one member.
  struct Burst {
    std::uint32_t probe = 0;
    std::uint32_t bytes = 0;
    bool from_member = false;
    BurstMeter meter;
    std::optional<Rate> before;  ///< of the burst that this one repeats
  };
  /// Bursts to several members at once.
  struct Together {
    std::size_t begun = 0;
    std::size_t answered = 0;
    std::uint64_t answered_bytes = 0;
    Rate best{};
  };
  void begin(PeerId member, std::uint32_t bytes, bool from_member);
  void begin_next(Instant now);
  void begin_together(Instant now);
  void end_together(Instant now);
  void advance(Instant now);
  void give_up(Instant now, bool overdue);
  void handle_measured(Instant now, Member& member, BurstMeter::Result measured);
  [[nodiscard]] std::uint32_t burst_bytes_max(const Member& member, bool from_member) const;
  [[nodiscard]] Member* connected(PeerId member);

  Membership& members_;
  ActionQueue& actions_;
  Rate origin_cap_;
  LinkEstimate origin_;
  Rate origin_before_{};  // as it was logged last
  SendingRate sent_;      // what publications have reached of it, since it was doubted
  Instant busy_at_{};
  Traffic traffic_;
  std::set<PeerId> wanted_;
  std::map<PeerId, Burst> running_;
  Instant began_at_{};  // the probe, or the bursts together
  Rate downlink_{};     // of the one that is probed, measured a moment ago
  std::optional<Together> together_;
  bool together_wanted_ = false;
  bool together_first_ = false;     // before any member alone
  Instant together_due_{};          // not before
  std::size_t together_count_ = 0;  // of members that there were the last time
  std::uint32_t last_probe_ = 0;
  std::uint64_t ended_count_ = 0;
};

}  // namespace weightcast
