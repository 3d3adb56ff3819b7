#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace weightcast {

/// Tracks what has become of each rollout in a worker's spool. Pure: no files, no sockets, no clock.
/// The learner gives with each answer its `life`, which is another one after each of its starts, and how many copies of
/// its buffer are in checkpoints on its disk. A rollout that it has acknowledged after n copies were begun is safe once
/// n + 1 are on the disk: until then it is kept, because a learner that is killed goes on without it. In another life
/// all that is kept is sent again.
/// Invariant: each entry is pending, sent, kept or deferred until it is removed; poll_removed() names it then, once.
class Outbox {
 public:
  using Id = std::uint64_t;

  struct Entry {
    std::uint64_t sequence = 0;
    Version oldest{};  ///< of its tokens
    Version newest{};
    std::uint64_t bytes = 0;
  };

  /// What the learner says of itself.
  struct Learner {
    std::string life;
    std::uint64_t copies_begun = 0;    ///< of its buffer, in this life
    std::uint64_t copies_durable = 0;  ///< of these
    Version version{};
    Version oldest_admissible{};
  };

  explicit Outbox(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  /// Removes what has to go so that `bytes` more fit. First entries too old to be admitted; then kept and deferred
  /// ones, which only a learner that is killed would want again, the oldest first. Whether they fit now: pending ones
  /// that the learner could take are never removed.
  [[nodiscard]] bool make_room(std::uint64_t bytes);
  /// Ids ascend.
  void add(Id id, const Entry& entry);
  /// All of them go: they are of another run.
  void clear();

  /// The next entries to send, in order: at most `count_max`, and `bytes_max` or a single one. They are sent until the
  /// learner's verdict, or handle_not_sent().
  [[nodiscard]] std::vector<Id> poll_batch(std::size_t count_max, std::uint64_t bytes_max);
  void handle_not_sent(const std::vector<Id>& ids);

  /// To be called with each answer, before the verdicts in it.
  void handle_learner(const Learner& learner);
  /// The learner has it now, or had it already.
  void handle_acknowledged(Id id);
  void handle_refused(Id id);
  /// The learner does not know its version yet: it went on from an older checkpoint, and will come there.
  void handle_deferred(Id id);

  [[nodiscard]] std::optional<Id> poll_removed();

  [[nodiscard]] const Entry& entry(Id id) const { return entries_.at(id).entry; }
  [[nodiscard]] bool contains(Id id) const { return entries_.contains(id); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Neither acknowledged nor refused.
  [[nodiscard]] std::uint64_t pending() const { return pending_; }
  [[nodiscard]] std::uint64_t kept() const { return entries_.size() - pending_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  enum class State { kPending, kSent, kKept, kDeferred };
  struct Tracked {
    Entry entry;
    State state = State::kPending;
    std::uint64_t copy = 0;  // of kKept: the first one that has it
  };

  void set_state(Tracked& tracked, State state);
  std::map<Id, Tracked>::iterator remove(std::map<Id, Tracked>::iterator at);
  [[nodiscard]] static bool is_pending(State state) { return state == State::kPending || state == State::kSent; }

  const std::uint64_t bytes_max_;
  std::map<Id, Tracked> entries_;
  std::vector<Id> removed_;
  Learner learner_;
  std::uint64_t bytes_ = 0;
  std::uint64_t pending_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace weightcast
