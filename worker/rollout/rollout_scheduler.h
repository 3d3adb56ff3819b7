#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/rollout/scheduler_options.h"

namespace weightcast {

/// One rollout: member `member` of group `group`. A rollout that begins anew has the next attempt, so that what comes
/// late of an earlier one can be told from it.
struct RolloutKey {
  std::uint64_t group = 0;
  std::uint32_t member = 0;
  std::uint32_t attempt = 0;

  constexpr auto operator<=>(const RolloutKey&) const = default;
};

/// What the caller of a RolloutScheduler does next.
struct RolloutAction {
  enum class Kind {
    kGenerate,      ///< `engine` samples the rollout's next turn; then handle_generated()
    kStep,          ///< its environment answers, or it is scored; then handle_observation() or handle_finished()
    kAbort,         ///< stop it, and forget what it has; nothing is to be reported
    kSend,          ///< it is finished and counts: send it
    kForget,        ///< it is finished and does not count
    kGroupDone,     ///< all of `rollout.group` that counts has been sent
    kGroupDropped,  ///< nothing (more) of `rollout.group` will be sent
  };
  Kind kind{};
  RolloutKey rollout;
  std::uint32_t engine = 0;  ///< of kGenerate

  bool operator==(const RolloutAction&) const = default;
};

/// Invariant: begun is the sum of the counters behind it, up to abandoned, and of what is under way or finished in
/// groups that are open.
struct SchedulerStats {
  std::uint64_t begun = 0;      ///< rollouts, each attempt for itself
  std::uint64_t sent = 0;       ///< they count
  std::uint64_t forgotten = 0;  ///< finished, of groups that were filtered, or became too stale, or were dropped
  std::uint64_t surplus = 0;    ///< stopped, since their group had enough without them
  std::uint64_t stale = 0;      ///< stopped, since they could not be used any more
  std::uint64_t suspended = 0;  ///< stopped by handle_suspended()
  std::uint64_t failed = 0;     ///< stopped, since they failed, or their group cannot become whole any more
  std::uint64_t late = 0;       ///< stopped, since they took too long
  std::uint64_t abandoned = 0;  ///< stopped or forgotten, since the learner gave up their group

  std::uint64_t groups_done = 0;
  std::uint64_t groups_filtered = 0;
  std::uint64_t groups_dropped = 0;  ///< those that were filtered not among them

  bool operator==(const SchedulerStats&) const = default;
};

/// Decides which rollout an engine generates next, which ones stop, and which ones are sent. Pure: no I/O, and its
/// caller passes the time. After each input the caller takes actions until there are none.
/// As in ROLL Flash (arXiv 2510.11345), any free slot takes the next rollout (queue scheduling), and each rollout of a
/// group is a task of its own (prompt replication) that goes on as soon as its environment has answered.
/// A group is leased by its number; its prompt and its seeds follow from the number. A rollout holds a slot of an
/// engine while it generates, and none while its environment answers or its reward is computed.
/// "Too stale" is a rollout that began under a version before learner - min(S, ceil(async_generation_ratio)); none
/// begins that would be. What comes of an attempt that was stopped is ignored.
/// Invariant: slots_busy() never exceeds engines * slots_per_engine, and a rollout is sent at most once per group
/// number and member.
class RolloutScheduler {
 public:
  /// Errors: those of validate().
  [[nodiscard]] static Result<RolloutScheduler> make(const SchedulerOptions& options);

  /// How many more groups it has use for now. The caller asks the learner for at most so many, once at a time.
  [[nodiscard]] std::uint64_t groups_wanted() const;
  /// Groups first, first + 1, ... are ours, and begin under `least` or later. Those under way already are not begun a
  /// second time.
  void handle_groups(Instant now, std::uint64_t first, std::uint64_t count, Version least = kNoVersion);
  /// The learner wants nothing more of it. Nothing if it is not under way.
  void handle_group_abandoned(Instant now, std::uint64_t group);

  /// From now on `engine` generates under `version`. Nothing begins on an engine without one.
  void handle_version(Instant now, std::uint32_t engine, Version version);
  /// The learner has done step `learner`: stops what became too stale.
  void handle_step(Instant now, Version learner);
  /// No turn begins under a version before `least` until this is called again; kNoVersion lets all begin. What is being
  /// generated goes on.
  void handle_sync(Instant now, Version least);

  /// The rollout's turn is sampled, and its slot free.
  void handle_generated(Instant now, const RolloutKey& rollout);
  /// Its environment has answered: it wants another turn.
  void handle_observation(Instant now, const RolloutKey& rollout);
  /// It has ended with `reward`.
  void handle_finished(Instant now, const RolloutKey& rollout, double reward);
  /// Its engine, its environment or its reward failed. It begins anew, attempts_max times in all; after that its group
  /// does without it, or is dropped if it cannot.
  void handle_failed(Instant now, const RolloutKey& rollout);

  /// Stops all that is under way until handle_resumed(). What has finished stays. A synchronous learner says so when it
  /// has its batch.
  void handle_suspended(Instant now);
  void handle_resumed(Instant now);

  /// Stops what takes too long. Call it at poll_deadline(), too.
  void handle_time(Instant now);
  [[nodiscard]] std::optional<Instant> poll_deadline() const;
  [[nodiscard]] std::optional<RolloutAction> poll_action();

  [[nodiscard]] std::uint64_t slots_busy() const { return slots_busy_; }
  [[nodiscard]] std::uint64_t slots() const;
  /// Groups under way.
  [[nodiscard]] std::uint64_t groups_open() const { return groups_.size(); }
  /// Rollouts that wait for a slot.
  [[nodiscard]] std::uint64_t waiting() const { return waiting_; }
  [[nodiscard]] const SchedulerStats& stats() const { return stats_; }

 private:
  enum class State : std::uint8_t {
    kWaiting,     // for a slot
    kGenerating,  // in a slot
    kStepping,    // its environment answers, or it is scored
    kFinished,
    kGone,  // sent, or given up
  };
  struct Member {
    State state = State::kWaiting;
    std::uint32_t attempt = 0;
    std::uint32_t failures = 0;
    std::uint32_t turn = 0;
    std::uint32_t engine = 0;  // of the last turn
    bool has_begun = false;    // this attempt
    Version version{};         // under which this attempt began
    Instant deadline{};
    double reward = 0;
  };
  struct Group {
    std::vector<Member> members;
    Version begin_at_least{};
    std::uint32_t finished = 0;
    std::uint32_t given_up = 0;
    std::uint32_t waiting = 0;
    std::uint32_t under_way = 0;  // begun and not finished
    std::uint64_t ready_key = 0;  // its place in ready_
    bool is_ready = false;
  };
  using Groups = std::map<std::uint64_t, Group>;
  struct Engine {
    std::uint32_t busy = 0;
    std::optional<Version> version;
  };

  explicit RolloutScheduler(const SchedulerOptions& options);

  [[nodiscard]] std::uint32_t width() const { return options_.group_size + options_.group_size_redundancy; }
  /// The least version that may begin.
  [[nodiscard]] Version floor() const;
  [[nodiscard]] bool can_begin(const Engine& engine, Version least) const;
  [[nodiscard]] static std::optional<Version> oldest_of(const Group& group);
  /// Where the rollout is, if that attempt is under way.
  [[nodiscard]] std::optional<std::pair<Groups::iterator, std::uint32_t>> find(const RolloutKey& rollout);
  [[nodiscard]] static RolloutKey key_of(Groups::const_iterator group, std::uint32_t member);

  void act(RolloutAction::Kind kind, const RolloutKey& rollout, std::uint32_t engine = 0);
  void enter(Groups::iterator group, std::uint32_t member, State state, std::uint32_t turn);
  void free_slot(Groups::iterator group, std::uint32_t member);
  void update_ready(Groups::iterator group);
  /// Takes back what the member has: what is under way counts in `counter`, what is finished as forgotten. The next
  /// attempt waits.
  void stop(Groups::iterator group, std::uint32_t member, std::uint64_t& counter);
  void retry(Groups::iterator group, std::uint32_t member, std::uint64_t& counter);
  /// Ends the group. What is under way counts in `stopped`, what is finished in `forgotten`.
  void close(Groups::iterator group, RolloutAction::Kind kind, std::uint64_t& stopped, std::uint64_t& forgotten);
  /// Ends the group if it is complete, or cannot become so.
  void settle(Groups::iterator group);
  /// Stops, of all groups, the members that `is_meant`; they begin anew.
  template <typename IsMeant>
  void stop_all(const IsMeant& is_meant, std::uint64_t& counter);

  /// Starts what can be started.
  void dispatch(Instant now);
  void start_members(Instant now, Groups::iterator group);
  [[nodiscard]] std::optional<std::uint32_t> pick_engine(const Group& group, const Member& member) const;
  void begin(Instant now, Groups::iterator group, std::uint32_t member, std::uint32_t engine);

  SchedulerOptions options_;
  std::vector<Engine> engines_;
  Version learner_{};
  Version begin_at_least_{};
  bool is_suspended_ = false;
  Groups groups_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> ready_;  // groups with rollouts that wait, in the order of starting
  std::set<std::pair<Instant, RolloutKey>> deadlines_;
  std::uint64_t slots_busy_ = 0;
  std::uint64_t waiting_ = 0;
  std::deque<RolloutAction> actions_;
  SchedulerStats stats_;
};

}  // namespace weightcast
