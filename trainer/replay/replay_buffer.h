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
#include "tasks/trajectory.h"
#include "trainer/replay/replay_options.h"
#include "trainer/replay/sequence_set.h"

namespace weightcast {

/// What became of a rollout that arrived. After all but kFull its worker forgets it.
enum class Admission {
  kAdmitted,
  kDuplicate,  ///< its worker has sent it before, and it was admitted then
  kRefused,    ///< for good; the reason says why
  kFull,       ///< for now: send it again later
};

struct Arrival {
  Admission admission = Admission::kAdmitted;
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
  std::optional<std::uint64_t> lease{};  ///< first_sequence of the start() that granted them; absent where none did
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
  std::uint64_t aborted = 0;                                  ///< started, and too old before they arrived
  std::uint64_t lost = 0;                                     ///< started, and not heard of again
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
  /// Errors: those of validate().
  [[nodiscard]] static Result<ReplayBuffer> make(const ReplayOptions& options, const TrajectoryRules& rules);
  /// All that it holds and remembers, as JSON for a checkpoint. Times are stored as spans from `now`.
  [[nodiscard]] std::string save(Instant now) const;
  /// A buffer that goes on as the one did that save() gave `text` of. Errors: those of validate(); kCorrupt, which
  /// names the member that is missing or wrong; kInvalidArgument for another group_size.
  [[nodiscard]] static Result<ReplayBuffer> restore(const ReplayOptions& options, const TrajectoryRules& rules,
                                                    std::string_view text, Instant now);

  /// A rollout has arrived. It is refused for what check_trajectory() finds; as stale; if its group is closed; if its
  /// sequence number is too far behind its worker's others; and if there are too many workers.
  Arrival handle_trajectory(Instant now, Trajectory trajectory);
  /// Workers can have `version` from now on. Nothing if a later one was published.
  void handle_published(Version version);
  /// Versions have other numbers from now on: `shift` is added to each that it knows. `names` says how rollouts that
  /// come from now on name those that were published before. With kAsKnown they are renumbered as they arrive, and what
  /// names a number that was skipped is refused: those are versions of a learner that was killed, and are not known.
  void handle_renumbered(std::uint64_t shift, NamesOfVersions names);
  /// The learner's weights are those of step `learner`; nothing if they were later ones. Drops what is inadmissible.
  void handle_step(Version learner);
  /// Gives up groups and starts whose time is over. Call it at poll_deadline(), too.
  void handle_time(Instant now);
  [[nodiscard]] std::optional<Instant> poll_deadline() const;

  /// A worker wants to start rollouts first_sequence, first_sequence + 1, ... Returns how many of `count` it may: none
  /// that would be too old for the learner's next batch even if they were sampled at once, and no
  /// more are under way and buffered than (1 + async_generation_ratio) batches, or max_staleness ones where the ratio
  /// is unlimited, but one at least. None if nothing that it could generate now would be admissible. Rollouts of a
  /// group do not count whose others are not under way: that group may stay incomplete.
  [[nodiscard]] std::uint64_t start(Instant now, const std::string& worker, std::uint64_t first_sequence,
                                    std::uint64_t count);
  /// A worker still has a rollout under way that it was allowed to start, as one of those from `lease` on, by this
  /// learner before it was restarted. Nothing if that is known, if the rollout has arrived, or beyond
  /// rollouts_max.
  void handle_held(Instant now, const RolloutId& id, std::uint64_t lease);
  /// The worker will not send that rollout.
  void handle_abandoned(const RolloutId& id);
  /// The same for all that it was allowed to start from that number on.
  void handle_not_started(const std::string& worker, std::uint64_t first_sequence);
  /// The worker is gone, or begins anew: what it has started will not come. If it comes all the same, it is judged as
  /// any other. Counted as lost.
  void handle_worker_lost(const std::string& worker);
  /// The next rollout under way whose worker should stop, since it has become inadmissible.
  [[nodiscard]] std::optional<RolloutId> poll_abort();

  [[nodiscard]] Supply supply() const;
  /// rollout_batch_size rollouts in whole groups; absent if supply() is not kReady. They are the caller's. Groups are
  /// in the order of their tags, and rollouts in that of their numbers: a batch does not tell in which order they
  /// arrived.
  [[nodiscard]] std::optional<std::vector<RolloutGroup>> take_batch();

  [[nodiscard]] Version learner() const { return learner_; }
  /// The least version that is admissible now.
  [[nodiscard]] Version oldest_admissible() const { return floor(); }
  [[nodiscard]] std::uint64_t buffered() const { return buffered_; }
  [[nodiscard]] std::uint64_t buffered_bytes() const { return buffered_bytes_; }
  /// Rollouts that were started and have not arrived.
  [[nodiscard]] std::uint64_t under_way() const { return started_.size(); }
  [[nodiscard]] const ReplayStats& stats() const { return stats_; }

 private:
  struct WorkerLog {
    SequenceSet sequences;
    Version newest{};  // the largest oldest_version of what was admitted
  };
  struct Start {
    Version version{};
    Instant deadline{};
    std::uint64_t lease = 0;  // the first of those that were granted together
  };

  ReplayBuffer(const ReplayOptions& options, const TrajectoryRules& rules) : options_(options), rules_(rules) {}

  Arrival refuse(std::string_view reason, std::string detail);
  [[nodiscard]] VersionStanding standing_of(Version version) const;
  /// The number of a version that a rollout names; absent if it is none of this learner's.
  [[nodiscard]] std::optional<Version> number_of(Version named) const;
  /// Rollouts that wait for others of their group of which none is under way.
  [[nodiscard]] std::uint64_t stranded() const;
  /// The least version that is admissible.
  [[nodiscard]] Version floor() const;
  /// The same when the learner's weights are those of step `learner`.
  [[nodiscard]] Version floor_at(Version learner) const;
  [[nodiscard]] bool make_room(std::uint64_t bytes, const std::string& tag);
  void admit(Instant now, Trajectory trajectory, std::uint64_t bytes);
  void complete(RolloutGroup group);
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
  std::map<std::string, WorkerLog> workers_;
  std::map<RolloutId, Start> started_;
  std::deque<RolloutId> aborts_;
  std::uint64_t buffered_ = 0;
  std::uint64_t buffered_bytes_ = 0;
  std::uint64_t batches_ = 0;
  bool is_training_ = false;  // on the last batch
  ReplayStats stats_;
};

}  // namespace weightcast
