#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/time.h"

namespace weightcast {

/// Decides how many groups of rollouts are to be leased or whole by now, so that each batch is whole when the learner
/// wants it, and not earlier: what begins later is fresher. Pure: no I/O, and its caller passes the time. ReplayBuffer
/// uses it.
///
/// The learner trains for T, and then wants a batch of G groups. A batch is released `lead` before it will be wanted:
/// from then on workers may lease its groups. C is the time from a group's release until it is whole; the demand keeps
/// the last ones, and of each how long nobody leased it. By the time at which the batch is wanted, a share F(lead) of
/// its groups is whole. `reserve` groups more, released a batch earlier, stand in for the others.
/// A rollout begins under the newest version that workers have, and each publication takes T_bcast to reach them. So a
/// lead that ends just before a version arrives wastes a step of age. The plan takes the lead for which
///   mean of ceil((lead - time without a lease + T_bcast) / T) + reserve / G,
/// the mean lag of rollouts in training steps, is least. That is below 1 + (time of a group + T_bcast) / T.
/// The reserve also follows what happens: if the learner waits for more than kWaitShare of its time, it grows by the
/// groups that were missing, unless no worker was refused a lease before that: then the fleet is too small, and earlier
/// leases would change nothing. Without such a wait it shrinks.
/// Invariant: groups_wanted() is at least G while the learner waits.
class RolloutDemand {
 public:
  /// Of its time the learner may wait so much.
  static constexpr double kWaitShare = 0.01;

  /// `groups`: G.
  explicit RolloutDemand(std::uint64_t groups) : groups_(groups) {}

  /// Groups up to number `end`, counted over the run, may be leased from now on.
  void handle_released(Instant now, std::uint64_t end);
  /// Group `place`, counted over the run, is leased. Returns for how long somebody could have leased it before.
  Duration handle_leased(Instant now, std::uint64_t place);
  /// A worker got fewer leases than it has room for.
  void handle_refused() { has_refused_ = true; }
  /// A group was leased `waited` after it was released, and whole `made` after that.
  void handle_whole(Duration waited, Duration made);
  /// Workers have a version so long after its publication.
  void handle_broadcast_time(double t_bcast_s) { t_bcast_s_ = t_bcast_s; }
  /// The learner has nothing to do until it gets a batch. `whole`: groups that are.
  void handle_wanted(Instant now, std::uint64_t whole);
  /// It got one, and trains on it.
  void handle_taken(Instant now);

  /// How many groups are to be leased or whole by now, beside those that are trained on.
  [[nodiscard]] std::uint64_t groups_wanted(Instant now) const;

  /// T: median seconds of a training step without its wait; absent before the first.
  [[nodiscard]] std::optional<double> step_s() const;
  [[nodiscard]] double lead_s() const { return lead_s_; }
  [[nodiscard]] std::uint64_t reserve() const;

 private:
  /// Chooses lead and reserve anew.
  void plan();
  /// Groups that are missing when a batch is wanted `lead` after its release. `sorted`: C of the last groups.
  [[nodiscard]] double reserve_for(double lead, double step, const std::vector<double>& sorted) const;

  std::uint64_t groups_;
  std::optional<Instant> wanted_;  // absent while the learner trains
  std::optional<Instant> taken_;
  std::deque<std::pair<std::uint64_t, Instant>> released_;  // ends, ascending, and since when
  std::deque<double> steps_s_;                              // the last ones
  struct Whole {
    double waited_s = 0;
    double s = 0;  // C
  };
  std::deque<Whole> wholes_;  // the same of groups
  double t_bcast_s_ = 0;
  double lead_s_ = 0;
  double reserve_ = 0;         // groups, by the distribution
  double margin_ = 0;          // groups, by what happened; reserve_ and margin_ together are not negative
  double wait_share_ = 0;      // of the last steps
  std::uint64_t missing_ = 0;  // groups, when the learner wanted its batch
  bool has_refused_ = false;   // since a batch was taken
};

}  // namespace weightcast
