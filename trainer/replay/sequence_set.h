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

  /// All of its state but ranges_max, for checkpoints. The ranges of a state neither overlap nor touch.
  struct State {
    std::map<std::uint64_t, std::uint64_t> ranges;
    bool forgot = false;
    std::uint64_t forgotten_to = 0;
  };
  [[nodiscard]] State state() const { return {ranges_, forgot_, forgotten_to_}; }
  void restore(State state) {
    ranges_ = std::move(state.ranges);
    forgot_ = state.forgot;
    forgotten_to_ = state.forgotten_to;
  }

 private:
  std::size_t ranges_max_;
  // First to last number of each range, both included. Ranges neither overlap nor touch.
  std::map<std::uint64_t, std::uint64_t> ranges_;
  bool forgot_ = false;
  std::uint64_t forgotten_to_ = 0;  // all up to this one, if forgot_
};

}  // namespace weightcast
