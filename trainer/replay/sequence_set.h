#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace weightcast {

/// The sequence numbers that were seen of one sender, in bounded memory. A sender may skip numbers and send them in any
/// order. Beyond `ranges_max` gaps the oldest numbers are forgotten, and all up to there count as too old.
class SequenceSet {
 public:
  enum class Seen { kNew, kSeen, kTooOld };

  explicit SequenceSet(std::size_t ranges_max) : ranges_max_(ranges_max) {}

  [[nodiscard]] Seen look_up(std::uint64_t sequence) const;
  /// `sequence` is kNew.
  void insert(std::uint64_t sequence);

  /// All but ranges_max, for checkpoints.
  struct State {
    /// First to last number of each range, both included. They neither overlap nor touch.
    std::map<std::uint64_t, std::uint64_t> ranges;
    bool forgot = false;
    std::uint64_t forgotten_to = 0;  ///< all up to this one, if it forgot any
  };
  [[nodiscard]] const State& state() const { return state_; }
  void restore(State state) { state_ = std::move(state); }

 private:
  std::size_t ranges_max_;
  State state_;
};

}  // namespace weightcast
