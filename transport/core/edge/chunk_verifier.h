#pragma once

#include <optional>
#include <vector>

#include "base/time.h"
#include "transport/core/action.h"
#include "transport/core/edge/early_arrivals.h"
#include "transport/core/edge/holdings.h"
#include "transport/core/timeouts.h"

namespace weightcast {

/// Judges what parents send of one payload by the manifest's digests, keeps what comes before it can be judged, and
/// hands what is right to the store. Pure. Owned by a Download, which knows the parents.
/// Invariant: a chunk is handed to the store once, and only after its digest matched.
class ChunkVerifier {
 public:
  /// All outlive it.
  ChunkVerifier(const Timeouts& timeouts, Holding& holding, ActionQueue& actions)
      : timeouts_(timeouts), holding_(holding), actions_(actions) {}

  enum class Verdict : std::uint8_t {
    kNew,       ///< right; now on its way to the store
    kKnown,     ///< was here before
    kEarly,     ///< cannot be judged yet, and waits
    kTooEarly,  ///< the same, but there is no room to keep it; only while the payload is open
    kDamaged,   ///< does not match its digest
    kForeign,   ///< cannot be of this payload
  };

  /// `may_wait`: the sender is a parent; of others nothing is kept. Damaged and foreign chunks are logged.
  [[nodiscard]] Verdict take_chunk(Instant now, ConnId sender, const ChunkArrival& chunk, bool may_wait);
  /// The same of the digests of one part; kNew: chunks that waited for them can be judged now. Errors: kCorrupt, for
  /// those that are not the manifest's.
  [[nodiscard]] Result<Verdict> take_part(ConnId sender, std::uint32_t part, Bytes digests, bool may_wait);

  /// What waits, to be judged anew: parts when the payload has grown, chunks when digests have come.
  [[nodiscard]] std::vector<EarlyArrivals::Part> take_early_parts() { return early_.take_parts(); }
  [[nodiscard]] std::vector<EarlyArrivals::Chunk> take_early_chunks() { return early_.take_chunks(); }
  /// Lets go of what waits from this sender.
  void forget(ConnId sender) { early_.erase(sender); }
  /// What waits takes so much memory.
  [[nodiscard]] std::size_t early_bytes() const { return early_.bytes(); }

  /// Over the last rate window that was full.
  [[nodiscard]] double bytes_per_s() const { return bytes_per_s_; }
  [[nodiscard]] std::optional<Instant> first_chunk_at() const { return first_chunk_at_; }

 private:
  void count_bytes(Instant now, std::uint32_t bytes);

  const Timeouts& timeouts_;
  Holding& holding_;
  ActionQueue& actions_;
  EarlyArrivals early_;
  std::optional<Instant> first_chunk_at_;
  Instant counted_since_{};
  std::uint64_t counted_bytes_ = 0;
  double bytes_per_s_ = 0;
};

}  // namespace weightcast
