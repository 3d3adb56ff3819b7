#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "transport/core/action.h"
#include "transport/core/burst_meter.h"
#include "transport/core/origin/link_estimate.h"
#include "transport/core/origin/membership.h"

namespace weightcast {

/// Measures the links between the origin and its members while nothing is published, and keeps what transfers say of
/// the origin's own uplink. A probe is bursts of padding on the member's control connection, first towards the member
/// and then from it, of 64 KiB, 256 KiB, 1 MiB and 4 MiB, until the second half of one took kLastedMin. One member is
/// probed at a time. Then bursts to up to kTogetherMax of them at once fill the origin's uplink: its rate is
/// their bytes over the time until the last member has answered, or the last but one of three and more.
///
///   who is probed                                            when
///   a member of which a direction is not configured          it has joined; again every kEvery
///   both ends of an edge that missed what the plan expected  after that publication
///   several together, unless the origin's uplink is          twice as many have joined as the last time; after a doubt
///   configured
///
/// A probe of a member concerns its own link alone. The rate towards it is its own word, the rate from it is what the
/// origin sees. So a member that lies or dawdles changes no other member's estimate. Of the origin's own uplink no
/// member says a rate. One that answers late is the one that nobody waits for. One that answers early adds its burst,
/// which is at most twice the middle one. What publications have sent of chunks counts, too, by the origin's own count.
/// Pure. Owned by an OriginCore. Invariant: what a publication has disturbed does not count.
class RateProbes {
 public:
  static constexpr std::uint32_t kBytesFirst = 64 * 1024;
  static constexpr Duration kLastedMin = std::chrono::milliseconds(30);
  static constexpr Duration kAnswerMax = std::chrono::seconds(5);
  static constexpr Duration kEvery = std::chrono::minutes(10);
  static constexpr std::size_t kTogetherMax = 8;

  /// All outlive it. `origin_cap`: what is configured.
  RateProbes(Membership& members, ActionQueue& actions, Rate origin_cap)
      : members_(members), actions_(actions), origin_cap_(origin_cap) {}

  /// The member has joined or said something: it is probed if it is time to.
  void consider(Instant now, const Member& member);
  /// It did not reach what the plan expected, or did so much better: it is probed again.
  void doubt(PeerId member) { wanted_.insert(member); }
  void doubt_origin();
  void handle_lost(PeerId member);
  /// Begins the next probe, and gives up one that is not answered. `idle`: nothing is published.
  void advance(Instant now, bool idle);
  /// Whether advance() has something to do once nothing is published.
  [[nodiscard]] bool waits() const { return !wanted_.empty() || !running_.empty() || together_wanted_; }
  void handle_probed(Instant now, Member& member, const wire::RateProbed& probed);
  /// So many bytes of chunks have left the origin since its start. To be told every now and then.
  void handle_sent(Instant now, std::uint64_t bytes_sent);

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

 private:
  /// A burst under way, to or from one member.
  struct Burst {
    std::uint32_t probe = 0;
    std::uint32_t bytes = 0;
    bool from_member = false;
    BurstMeter meter;
  };
  void begin(Instant now, PeerId member, std::uint32_t bytes, bool from_member);
  void begin_together(Instant now);
  void end_together(Instant now);
  void handle_measured(Instant now, Member& member, BurstMeter::Result measured);
  [[nodiscard]] Member* connected(PeerId member);

  Membership& members_;
  ActionQueue& actions_;
  const Rate origin_cap_;
  LinkEstimate origin_;
  Rate origin_before_{};  // as it was known last, whatever was doubted since
  Rate sent_{};           // what publications have reached of it, since it was doubted
  std::set<PeerId> wanted_;
  std::map<PeerId, Burst> running_;
  Instant began_at_{};  // the last burst
  Rate downlink_{};     // of the one that is probed, measured a moment ago
  bool together_ = false;
  bool together_wanted_ = false;
  std::size_t together_count_ = 0;    // of members that there were the last time
  std::size_t together_begun_ = 0;    // bursts
  std::uint64_t together_bytes_ = 0;  // that have been answered for
  Rate together_rate_{};
  std::uint32_t last_probe_ = 0;
  std::uint64_t ended_count_ = 0;
  std::optional<Instant> sent_since_;
  std::uint64_t sent_before_ = 0;
};

}  // namespace weightcast
