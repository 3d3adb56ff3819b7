#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "base/units.h"
#include "sim/payload_map.h"
#include "transport/core/chunk_set.h"

namespace weightcast::sim {

/// What one host keeps of the versions: survives its processes, and of a crash of the host what was synced.
/// Writing takes time (`write()` says when it is done); what is on disk is told from what was only handed over.
class Disk {
 public:
  struct Partial {
    ChunkSet written;
    ChunkSet damaged;  ///< of those, the ones whose bytes are wrong: there are none, unless a core is broken
    std::vector<bool> parts;
    bool open = false;
    std::uint32_t room_chunks = 0;  ///< what an open one has grown to
    std::deque<std::pair<Instant, ChunkIndex>> unsynced;
  };

  Disk(Rate write_rate, Duration sync_delay) : base_rate_(write_rate), rate_(write_rate), sync_delay_(sync_delay) {}

  /// Makes room, or finds what is there already; of an open payload nothing is.
  Partial& begin(PayloadId payload, std::uint32_t chunks, std::uint32_t parts);
  [[nodiscard]] Partial* find(PayloadId payload) { return partial_.find(payload); }
  void discard(PayloadId payload) { partial_.erase(payload); }
  /// A process starts anew: what it had of open payloads is worth nothing.
  void discard_open();

  /// When a write of so many bytes that is asked for now will be done.
  [[nodiscard]] Instant write(Instant now, std::uint32_t bytes);
  void handle_written(Instant now, Partial& partial, ChunkIndex chunk, bool damaged) const;
  void finish(Instant now, PayloadId payload);

  [[nodiscard]] bool holds(Version version) const { return finished_.contains(version); }
  struct Finished {
    Instant at{};
    PayloadId payload{};  ///< that brought it
  };
  [[nodiscard]] const std::map<Version, Finished>& finished() const { return finished_; }

  /// The host loses power: what is younger than the sync delay is gone.
  void crash(Instant now);

  bool full = false;
  void set_rate(std::optional<Rate> rate) { rate_ = rate.value_or(base_rate_); }

 private:
  const Rate base_rate_;
  Rate rate_;
  const Duration sync_delay_;
  Instant free_at_{};
  PayloadMap<Partial> partial_;
  std::map<Version, Finished> finished_;
};

}  // namespace weightcast::sim
