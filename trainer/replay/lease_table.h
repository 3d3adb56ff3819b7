#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace weightcast {

/// A group that one worker may generate: rollouts `first` to `first + size - 1` of the worker's own numbers. The first
/// group_size of them that arrive make the group; the others are redundant.
struct Lease {
  enum class State {
    kExpected,  ///< the next batches count on its group
    kOverdue,   ///< it takes so long that somebody else gets its place; the worker may still bring it
    kLapsed,    ///< its time is over, or it is too old. Rollouts that come all the same are taken
  };

  std::uint64_t group = 0;  ///< its number over the run, in which its rollouts' tag ends
  std::uint64_t first = 0;
  std::uint64_t size = 0;
  Version version{};  ///< the newest that was published when it was granted
  Instant granted{};
  State state = State::kExpected;
  Duration waited{};               ///< before it was granted, for a worker that could have had it
  std::string tag = {};            ///< of the rollouts that arrived; "": none has
  std::vector<bool> settled = {};  ///< by rollout: it has arrived, or will not come
  std::uint64_t abandoned = 0;     ///< rollouts that will not come

  bool operator==(const Lease&) const = default;
};

/// One worker's leases, for people.
struct LeaseRecord {
  std::uint64_t groups_leased = 0;     ///< now: expected or overdue
  std::uint64_t groups_overdue = 0;    ///< of these
  std::uint64_t groups_delivered = 0;  ///< whole ones
  std::uint64_t groups_failed = 0;     ///< that became overdue, or lapsed
  bool is_held_back = false;           ///< it has had leases for long and brought nothing
};

/// Tracks which worker may generate which group, and how many more each may have. Pure: no I/O, and its caller passes
/// the time. ReplayBuffer uses it.
/// A lease is overdue after five times the mean time of a group (ten times while few are known), and after
/// `overdue_min` at the earliest.
/// Shares: if `groups` may be leased over all workers, one of them may have twice its share of that, and one at least.
/// Shares follow what the workers have delivered lately; a newcomer counts like one that has delivered nothing yet.
/// Of a worker that has leases overdue and has brought nothing for as long, these count against its share.
/// A worker that has had leases for twenty times the mean time of a group and a minute at least, or for five minutes
/// while that is not known, and has delivered none since the first, is held back: whatever it gives back, asks for anew
/// or claims to hold. So is one of which leases became overdue, lapsed or were given back at eight times, and none in
/// between brought a group. Then it gets a lease now and then, which nobody counts on, until it delivers one. So a
/// worker that hoards leases holds up the learner for that long, once. Invariant: leases of one worker do not overlap;
/// expected() counts those in kExpected.
class LeaseTable {
 public:
  using Key = std::pair<std::string, std::uint64_t>;  ///< a worker, and the first number of its lease

  /// `needed`: rollouts that make a group. `time_max`: from a lease until it lapses. `overdue_min`: how long a worker
  /// may pause without an effect on which groups a batch has.
  LeaseTable(std::uint64_t needed, Duration time_max, Duration overdue_min)
      : needed_(needed), time_max_(time_max), overdue_min_(overdue_min) {}

  /// How many more groups `worker`, which asks now, may have if `groups` may be leased over all workers.
  [[nodiscard]] std::uint64_t share_left(Instant now, const std::string& worker, std::uint64_t groups);
  /// How many of the expected groups are more than their workers' shares of `groups`, by weight, of workers that have
  /// brought nothing for `overdue_min`. Until the time of a group is known nothing is overdue, and the first worker
  /// that asks may have leased all.
  [[nodiscard]] std::uint64_t excess(Instant now, std::uint64_t groups);
  /// `lease` is expected from now on. Nothing if it overlaps another one.
  void add(const std::string& worker, Lease lease);

  /// The lease that a rollout is of; null: none of this worker's.
  [[nodiscard]] const Lease* find(const std::string& worker, std::uint64_t sequence) const;
  /// A rollout of a lease has arrived, tagged `tag`.
  void handle_arrived(const std::string& worker, std::uint64_t sequence, const std::string& tag);
  /// It will not come. A lease that cannot give a whole group any more ends. Returns its tag, if it has one.
  std::optional<std::string> handle_abandoned(const std::string& worker, std::uint64_t sequence);
  /// Leases from that number on, of which nothing has arrived, never reached their worker. Returns their groups.
  [[nodiscard]] std::vector<std::uint64_t> handle_not_granted(const std::string& worker, std::uint64_t first_sequence);
  /// The group of that rollout is whole: its lease ends.
  void handle_group_whole(Instant now, const std::string& worker, std::uint64_t sequence);
  /// The group of that rollout takes no more: its lease ends. Returns the rollouts that are under way in vain.
  [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> handle_group_closed(const std::string& worker,
                                                                                       std::uint64_t sequence);
  /// What the worker has under way ends. Returns its leases.
  [[nodiscard]] std::vector<Lease> handle_worker_lost(const std::string& worker);
  /// The learner takes nothing older than `least` any more: older leases lapse, and are forgotten some versions later.
  /// Returns the rollouts that are under way in vain.
  [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> handle_floor(Version least);
  /// A batch was taken: what was delivered before it counts less from now on.
  void handle_batch();
  /// Judges what is overdue, and past its time. Returns how many rollouts have lapsed.
  std::uint64_t handle_time(Instant now);
  void handle_renumbered(std::uint64_t shift);

  /// The learner goes on from a checkpoint: workers may have had leases of it before.
  void handle_resumed() { is_resumed_ = true; }
  /// Of a rollout that find() has no lease of: whether its lease is over. Workers' numbers ascend, so it is taken to
  /// have had one if later numbers were leased to its worker, or none since the learner was resumed.
  [[nodiscard]] bool has_ended(const std::string& worker, std::uint64_t sequence) const;

  /// Groups that are expected.
  [[nodiscard]] std::uint64_t expected() const { return expected_; }
  /// Rollouts that are expected, or overdue.
  [[nodiscard]] std::uint64_t rollouts_under_way() const;
  /// Mean seconds from a group's lease until it is whole; absent before the first.
  [[nodiscard]] std::optional<double> group_s() const { return group_s_; }
  [[nodiscard]] LeaseRecord record_of(const std::string& worker) const;
  [[nodiscard]] const std::map<Key, Lease>& all() const { return leases_; }

 private:
  struct Worker {
    Instant asked{};
    std::uint64_t leased = 0;
    std::uint64_t overdue = 0;
    double delivered_lately = 0;
    std::uint64_t delivered = 0;
    std::uint64_t failed = 0;
    std::uint64_t failed_in_row = 0;      // since the last delivery
    std::optional<Instant> failed_at;     // the last one of these; what fails together counts once
    std::optional<Instant> barren_since;  // the first grant after the last delivery
    std::optional<Instant> probed_at;     // the last lease while it is held back
  };
  using Leases = std::map<Key, Lease>;

  [[nodiscard]] Leases::const_iterator look_up(const std::string& worker, std::uint64_t sequence) const;
  [[nodiscard]] Leases::iterator look_up(const std::string& worker, std::uint64_t sequence);
  /// When the first lease lapses that has not.
  [[nodiscard]] std::optional<Instant> lapses_at() const;
  /// How long a lease may take before it is overdue, and a worker bring nothing before it is held back.
  [[nodiscard]] Duration overdue_after() const;
  [[nodiscard]] Duration barren_max() const;
  /// From one lease to a worker that is held back until the next.
  [[nodiscard]] Duration probe_interval() const;
  /// Whether it has had leases for that long, and brought nothing since.
  [[nodiscard]] bool is_barren(Instant now, const Worker& worker) const;
  [[nodiscard]] bool is_held_back(Instant now, const Worker& worker) const;
  [[nodiscard]] double weights(Instant now);
  /// Counts it in or out, by its state.
  void count(const Key& key, const Lease& lease, int change);
  void set_state(Leases::value_type& entry, Lease::State state);
  void fail(const std::string& worker);
  Leases::iterator erase(Leases::iterator lease);
  [[nodiscard]] static std::uint64_t unsettled(const Lease& lease);
  static void append_unsettled(const Leases::value_type& entry, std::vector<std::pair<std::string, std::uint64_t>>& to);

  std::uint64_t needed_;
  Duration time_max_;
  Duration overdue_min_;
  Leases leases_;
  std::map<std::string, Worker> workers_;
  std::map<std::string, std::uint64_t> granted_;  // one past the greatest number that was leased to a worker
  bool is_resumed_ = false;
  std::uint64_t expected_ = 0;
  std::optional<double> group_s_;
  std::uint64_t groups_timed_ = 0;
  double weights_ = 0;  // as of weighed_
  std::optional<Instant> weighed_;
  Instant now_{};      // of the last call that gave it
  Instant scan_at_{};  // before that nothing lapses, and what is overdue since may wait
};

}  // namespace weightcast
