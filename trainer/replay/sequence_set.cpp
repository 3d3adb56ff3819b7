#include "trainer/replay/sequence_set.h"

#include <iterator>

#include "base/result.h"

namespace weightcast {

SequenceSet::Seen SequenceSet::look_up(std::uint64_t sequence) const {
  if (forgot_ && sequence <= forgotten_to_) return Seen::kTooOld;
  const auto after = ranges_.upper_bound(sequence);
  return after != ranges_.begin() && sequence <= std::prev(after)->second ? Seen::kSeen : Seen::kNew;
}

void SequenceSet::insert(std::uint64_t sequence) {
  WC_ASSERT(look_up(sequence) == Seen::kNew);
  const auto after = ranges_.upper_bound(sequence);
  const auto before = after == ranges_.begin() ? ranges_.end() : std::prev(after);
  // No overflow: the range before ends below `sequence`, and the one after begins above it.
  const bool joins_before = before != ranges_.end() && before->second + 1 == sequence;
  const bool joins_after = after != ranges_.end() && sequence + 1 == after->first;
  const std::uint64_t last = joins_after ? after->second : sequence;
  if (joins_after) ranges_.erase(after);
  if (joins_before) {
    before->second = last;
  } else {
    ranges_.emplace(sequence, last);
  }
  if (ranges_.size() <= ranges_max_) return;
  forgot_ = true;
  forgotten_to_ = ranges_.begin()->second;
  ranges_.erase(ranges_.begin());
}

}  // namespace weightcast
