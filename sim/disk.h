#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "base/units.h"
#include "sim/payload_map.h"
#include "transport/core/manifest/chunk_set.h"

namespace weightcast::sim {

/// The versions on one host's disk. They survive its processes; of a crash of the host, what was synced survives.
/// Writing takes time, and write() says when it ends. The disk tells written chunks from those that are on their way.
class Disk {
 public:
  struct Partial {
    ChunkSet written;
    std::vector<bool> parts;
    bool open = false;
    std::uint32_t room_chunks = 0;  ///< how many chunks an open payload has grown to
    std::deque<std::pair<Instant, ChunkIndex>> unsynced;
  };

  Disk(Rate write_rate, Duration sync_delay) : base_rate_(write_rate), rate_(write_rate), sync_delay_(sync_delay) {}

  /// Makes room for a payload, or finds what is there of it. There is nothing of an open one.
  Partial& begin(PayloadId payload, std::uint32_t chunks, std::uint32_t parts);
  [[nodiscard]] Partial* find(PayloadId payload) { return partial_.find(payload); }
  void discard(PayloadId payload) { partial_.erase(payload); }
  /// Discards open payloads, as the start of a process does.
  void discard_open();

  /// When a write of so many bytes ends that begins now.
  [[nodiscard]] Instant write(Instant now, std::uint32_t bytes);
  void handle_written(Instant now, Partial& partial, ChunkIndex chunk) const;
  void finish(Instant now, PayloadId payload);

  [[nodiscard]] bool holds(Version version) const { return finished_.contains(version); }
  struct Finished {
    Instant at{};
    PayloadId payload{};  ///< that brought it
  };
  [[nodiscard]] const std::map<Version, Finished>& finished() const { return finished_; }

  /// The host loses power. What is younger than the sync delay is gone.
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
