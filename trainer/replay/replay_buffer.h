#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "trainer/replay/lease_table.h"
#include "trainer/replay/replay_options.h"
#include "trainer/replay/rollout_demand.h"
#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {

/// What became of a rollout that arrived. After all but kFull its worker forgets it.
enum class AdmissionOutcome {
  kAdmitted,
  kDuplicate,  ///< its worker has sent it before, and it was admitted then
  kRefused,    ///< for good; the reason says why
  kFull,       ///< for now: send it again later
};

struct Arrival {
  AdmissionOutcome admission = AdmissionOutcome::kAdmitted;
  std::string_view reason;  ///< of kRefused, for metrics: a TrajectoryFault's name or one of those in replay_buffer.cpp
  std::string detail;       ///< for people
};

/// Rollouts of one prompt (or what else the adapter's tag means), as many as group_size says.
struct RolloutGroup {
  std::string tag;
  std::vector<Trajectory> rollouts;
  Version oldest{};          ///< of all of them
  std::uint64_t number = 0;  ///< of its first rollout among all admitted ones
  std::uint64_t bytes = 0;
  Instant first_arrival{};
};

/// Who a rollout is: its worker and the number that it gave it.
using RolloutId = std::pair<std::string, std::uint64_t>;

/// How rollouts name a version that got another number (ReplayBuffer::handle_renumbered()).
enum class NamesOfVersions {
  kNew,      ///< by the new number: their source was renumbered, too
  kAsKnown,  ///< by the number under which the version was published
};

/// Where a learner that wants a batch stands.
enum class Supply {
  kReady,      ///< take_batch() gives one
  kWaiting,    ///< not yet
  kExhausted,  ///< nothing that may still come is admissible: publish a version, or stop
};

/// Each admitted rollout is buffered, or counted in one of those behind it.
struct ReplayStats {
  std::uint64_t admitted = 0;
  std::uint64_t taken = 0;     ///< into batches
  std::uint64_t expired = 0;   ///< of complete groups that became too old
  std::uint64_t given_up = 0;  ///< of groups that did not become complete: too old, too late, or for room
  std::uint64_t filtered = 0;  ///< of groups without signal

  std::uint64_t duplicates = 0;
  std::uint64_t full = 0;
  std::uint64_t aborted = 0;                                  ///< leased, and too old before they arrived
  std::uint64_t lost = 0;                                     ///< leased, and not heard of again
  std::map<std::string, std::uint64_t, std::less<>> refused;  ///< by reason

  bool operator==(const ReplayStats&) const = default;
};

/// Holds rollouts until the learner trains on them. Pure: no I/O, and its caller passes the time.
/// Versions count training steps. At learner version t a rollout is admissible if its oldest token is of version
/// v >= t - max_staleness and v >= t - ceil(async_generation_ratio), when it arrives and when it is sampled.
/// Policy when full: what has become inadmissible goes first. If the complete groups do not make a batch, the
/// incomplete group that began first is given up, until there is room; then complete groups that lag more than a
/// fractional ratio allows. Otherwise the newcomer is refused as kFull. So nothing is dropped to make room while the
/// learner has work. Copyable: a copy is what a checkpoint has to hold. One thread uses it. Invariant: stats().admitted
/// == buffered() + taken + expired + given_up + filtered.
class ReplayBuffer {
 public:
  ReplayBuffer(const ReplayOptions& options, const TrajectoryRules& rules)
      : options_(options),
        rules_(rules),
        leases_(options.group_size, options.lease_time_max, overdue_min(options)),
        demand_(options.rollout_batch_size / options.group_size) {}
  /// All that it holds and remembers, as JSON for a checkpoint. Times are stored as spans from `now`.
  [[nodiscard]] std::string save(Instant now) const;
  /// A buffer that goes on as the one did that save() gave `text` of. Errors: kCorrupt, which names the
  /// member that is missing or wrong; kInvalidArgument for another group_size. Each rollout is checked as if it
  /// arrived; a group with one that would be refused is given up.
  [[nodiscard]] static Result<ReplayBuffer> restore(const ReplayOptions& options, const TrajectoryRules& rules,
                                                    std::string_view text, Instant now);

  /// A rollout has arrived. It is refused for what check_trajectory() finds; as stale; if its group is closed; and with
  /// leased_only if it is of no lease of its worker's.
  Arrival handle_trajectory(Instant now, Trajectory trajectory);
  /// Workers can have `version` from now on. Nothing if a later one was published.
  void handle_published(Version version);
  /// Versions have other numbers from now on: `shift` is added to each that it knows. `names` says how rollouts that
  /// come from now on name those that were published before. With kAsKnown they are renumbered as they arrive, and what
  /// names a number that was skipped is refused: those are versions of a learner that was killed, and are not known.
  void handle_renumbered(std::uint64_t shift, NamesOfVersions names);
  /// The learner's weights are those of step `learner`; nothing if they were later ones. Drops what is inadmissible.
  void handle_step(Version learner);
  /// Gives up groups and starts whose time is over. Call it now and then.
  void handle_time(Instant now);

  /// How many of `groups` more groups `worker`, which has room for them, may generate now. Without
  /// async_generation_ratio: as many as RolloutDemand says, for at most max_staleness batches; with it as many as ROLL
  /// does, so that 1 + alpha batches are leased, whole or trained on. None that would be too old for its batch even if
  /// it began at once. Each worker has a share (LeaseTable).
  [[nodiscard]] std::uint64_t leasable(Instant now, const std::string& worker, std::uint64_t groups);
  /// The number of the group that is to be leased next: one that was leased and is to be made again, or a new one.
  [[nodiscard]] std::uint64_t take_group();
  /// The numbers before it are not given out any more: those of a checkpoint of an earlier release.
  void skip_groups(std::uint64_t before) { next_group_ = std::max(next_group_, before); }
  /// The worker has group number `group` from now on, as rollouts first_sequence to first_sequence + size - 1. `size`
  /// is group_size and at most group_size_redundancy more. Returns the least version that the group may begin under:
  /// with an older one it would be too old for its batch.
  Version lease(Instant now, const std::string& worker, std::uint64_t group, std::uint64_t first_sequence,
                std::uint64_t size);
  /// The worker will not send that rollout.
  void handle_abandoned(const RolloutId& id);
  /// Its worker has not heard of the leases from that number on: others get their groups.
  void handle_not_granted(const std::string& worker, std::uint64_t first_sequence);
  /// The worker is gone, or begins anew: its groups are made again, and what it has of them is aborted. Counted as
  /// lost.
  void handle_worker_lost(const std::string& worker);
  /// The next rollout under way whose worker should stop, since it has become inadmissible.
  [[nodiscard]] std::optional<RolloutId> poll_abort();

  /// The learner has nothing to do until it gets a batch. Once or more before take_batch().
  void handle_wanted(Instant now) { demand_.handle_wanted(now, usable_groups()); }
  /// Workers have a version so long after its publication.
  void handle_broadcast_time(double t_bcast_s) { demand_.handle_broadcast_time(t_bcast_s); }
  [[nodiscard]] Supply supply() const;
  /// rollout_batch_size rollouts in whole groups; absent if supply() is not kReady. They are the caller's. Groups are
  /// in the order of their tags, and rollouts in that of their numbers: a batch does not tell in which order they
  /// arrived.
  [[nodiscard]] std::optional<std::vector<RolloutGroup>> take_batch(Instant now);

  [[nodiscard]] Version learner() const { return learner_; }
  /// The least version that is admissible now.
  [[nodiscard]] Version oldest_admissible() const { return floor(); }
  [[nodiscard]] std::uint64_t buffered() const { return buffered_; }
  [[nodiscard]] std::uint64_t buffered_bytes() const { return buffered_bytes_; }
  /// Rollouts that are leased and have not arrived.
  [[nodiscard]] std::uint64_t under_way() const { return leases_.rollouts_under_way(); }
  [[nodiscard]] const LeaseTable& leases() const { return leases_; }
  [[nodiscard]] const RolloutDemand& demand() const { return demand_; }
  [[nodiscard]] const ReplayStats& stats() const { return stats_; }

 private:
  /// Of a lease. Which groups a synchronous batch has should not depend on how long a worker pauses.
  [[nodiscard]] static Duration overdue_min(const ReplayOptions& options);
  Arrival refuse(std::string_view reason, std::string detail);
  [[nodiscard]] VersionStanding standing_of(Version version) const;
  /// The number of a version that a rollout names; absent if it is none of this learner's.
  [[nodiscard]] std::optional<Version> number_of(Version named) const;
  /// Whether it is admitted already: as its lease says, or its group where there are no leases.
  [[nodiscard]] bool has_arrived(const Trajectory& trajectory) const;
  /// Whether a rollout may come from its worker: absent, or why not.
  [[nodiscard]] std::optional<Arrival> refusal_of_lease(const Trajectory& trajectory);
  /// A rollout is refused for good: its lease may end by that, and its group with it.
  void give_back(const Trajectory& trajectory);
  [[nodiscard]] std::uint64_t batch_groups() const { return options_.rollout_batch_size / options_.group_size; }
  /// Groups that the first batch may have beyond its own.
  [[nodiscard]] std::uint64_t additional_groups() const;
  /// Groups that are whole, or leased and expected.
  [[nodiscard]] std::uint64_t groups_ahead() const { return usable_groups() + leases_.expected(); }
  /// Whole groups that the next batches can take: of those that lag most, a fractional ratio lets a part of one in.
  [[nodiscard]] std::uint64_t usable_groups() const;
  /// How many of these there may be.
  [[nodiscard]] std::uint64_t groups_ahead_max(Instant now) const;
  /// For which batch, from the next one on, the group after `ahead` others is.
  [[nodiscard]] std::uint64_t batch_of(std::uint64_t ahead) const;
  [[nodiscard]] Version begin_at_least(std::uint64_t ahead) const;
  /// What came from a checkpoint is judged as if it arrived now: groups with a rollout that is refused are given up.
  void check_restored();
  /// Their workers are to stop.
  void abort_all(const std::vector<RolloutId>& in_vain);
  /// The least version that is admissible.
  [[nodiscard]] Version floor() const;
  /// The same when the learner's weights are those of step `learner`.
  [[nodiscard]] Version floor_at(Version learner) const;
  [[nodiscard]] bool make_room(std::uint64_t bytes, const std::string& tag);
  void admit(Instant now, Trajectory trajectory, std::uint64_t bytes);
  void complete(Instant now, RolloutGroup group);
  void close(const std::string& tag);
  void release(const RolloutGroup& group, std::uint64_t& counter);
  void give_up(std::map<std::string, RolloutGroup>::iterator group);
  /// Positions in complete_ of the groups that the next batch takes; fewer if there are not enough.
  [[nodiscard]] std::vector<std::size_t> choose() const;

  ReplayOptions options_;
  TrajectoryRules rules_;
  Version learner_{};
  std::vector<Version> published_;         // ascending; those below the floor are forgotten
  std::map<Version, Version> renumbered_;  // by the number that rollouts name; those below the floor are forgotten
  Version first_own_{};                    // numbers from there on are what they say
  std::map<std::string, RolloutGroup> open_;
  std::vector<RolloutGroup> complete_;
  std::map<std::string, Version> closed_;  // tags of groups that take no more, and the learner's version then
  std::deque<std::string> closed_order_;
  LeaseTable leases_;
  std::uint64_t next_group_ = 0;
  std::set<std::uint64_t> again_;  // groups that were leased, and are to be made again
  RolloutDemand demand_;
  std::deque<RolloutId> aborts_;
  std::uint64_t buffered_ = 0;
  std::uint64_t buffered_bytes_ = 0;
  std::uint64_t batches_ = 0;
  bool is_training_ = false;  // on the last batch
  ReplayStats stats_;
};

}  // namespace weightcast
