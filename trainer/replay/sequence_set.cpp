#include "trainer/replay/sequence_set.h"

#include <iterator>

#include "base/result.h"

namespace weightcast {

SequenceSet::Seen SequenceSet::look_up(std::uint64_t sequence) const {
  if (state_.forgot && sequence <= state_.forgotten_to) return Seen::kTooOld;
  const auto after = state_.ranges.upper_bound(sequence);
  return after != state_.ranges.begin() && sequence <= std::prev(after)->second ? Seen::kSeen : Seen::kNew;
}

void SequenceSet::insert(std::uint64_t sequence) {
  WC_ASSERT(look_up(sequence) == Seen::kNew);
  const auto after = state_.ranges.upper_bound(sequence);
  const auto before = after == state_.ranges.begin() ? state_.ranges.end() : std::prev(after);
  // No overflow: the range before ends below `sequence`, and the one after begins above it.
  const bool joins_before = before != state_.ranges.end() && before->second + 1 == sequence;
  const bool joins_after = after != state_.ranges.end() && sequence + 1 == after->first;
  const std::uint64_t last = joins_after ? after->second : sequence;
  if (joins_after) state_.ranges.erase(after);
  if (joins_before) {
    before->second = last;
  } else {
    state_.ranges.emplace(sequence, last);
  }
  if (state_.ranges.size() <= ranges_max_) return;
  state_.forgot = true;
  state_.forgotten_to = state_.ranges.begin()->second;
  state_.ranges.erase(state_.ranges.begin());
}

}  // namespace weightcast
