#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/settings/words.h"
#include "base/time.h"
#include "base/units.h"
#include "sim/event_queue.h"

namespace weightcast::sim {

/// Kinds of one simulation alone say so: the other neither draws them nor reads them from a file.
enum class FaultKind : std::uint8_t {
  kKill,       ///< the process dies, and its files stay; it starts again when the fault ends
  kCrash,      ///< the host dies, and unsynced bytes with it; it starts again when the fault ends
  kStall,      ///< the process stands still (SIGSTOP); of cores
  kThrottle,   ///< its uplink falls to `rate`
  kChoke,      ///< its downlink falls to `rate`
  kPartition,  ///< nothing passes between it and `peer`, or anybody; with `one_way` only its own frames are held back
  kReset,      ///< its connections break, and both sides are told
  kCorrupt,    ///< the next `count` chunks that it sends arrive damaged
  kLoss,       ///< each of its frames is lost with `probability`, and sent again later
  kDelay,      ///< its frames take `by` longer
  kSlowDisk,   ///< its disk writes at `rate`; of cores
  kFullDisk,   ///< its disk has no space left
  kSkew,       ///< its clock leaps ahead by `by`; of cores
  kDrift,      ///< its clock runs faster by `probability` (0.001: one second in a thousand); of cores
  kLeave,      ///< it says goodbye and stops (SIGTERM); a whole node starts again when the fault ends
  kPublish,    ///< no fault: the origin publishes the next version
  kBlock,      ///< dials of it are dropped, with `one_way` refused: those of `peer`, or of all workers
  // Of whole nodes.
  kWipe,         ///< as kKill, and its disk is emptied: of the origin's, the trainer begins another run, with version 1
  kDiskErrors,   ///< calls of its disk fail, and read and write less than they should, by chance
  kStalledDisk,  ///< operations on chunks and off-loop work do not end
  kRot,          ///< one bit of one stored file changes
  kFailedCall,   ///< one call of its disk fails: the `changes_later`-th from then, or from its start
};

constexpr Words<22> words_of(FaultKind) {
  return {"kill",  "crash", "stall",      "throttle",  "choke", "partition", "reset", "corrupt",
          "loss",  "delay", "slowdisk",   "fulldisk",  "skew",  "drift",     "leave", "publish",
          "block", "wipe",  "diskerrors", "stalldisk", "rot",   "failcall"};
}

/// What happens to one node. Node 0 is the origin, node i the i-th worker.
struct Fault {
  static constexpr NodeIndex kEverybody = kNoIndex;

  FaultKind kind{};
  Duration at{};     ///< after the first publication, of whole nodes after the start
  Duration lasts{};  ///< zero: for good
  NodeIndex node = 0;
  NodeIndex node_last = 0;  ///< the fault hits all nodes from `node` to this one
  NodeIndex peer = kEverybody;
  bool one_way = false;
  Rate rate{};
  Duration by{};
  double probability = 0;
  std::uint32_t count = 1;
  // Of whole nodes.
  std::uint64_t changes_later = 0;  ///< kKill, kCrash and kWipe come just before this change of the disk; 0: at once
  std::uint64_t again_after = 0;    ///< the next start ends the same way, this many changes on; 0: it does not

  /// Whether it never ends.
  [[nodiscard]] bool forever() const { return lasts == Duration::zero(); }
  bool operator==(const Fault&) const = default;
};

/// Reads a fault file for a simulation of cores: one fault a line, `#` starts a comment.
///
///   at TIME WHAT WHO [from WHO] [oneway | refused] [to RATE] [by AMOUNT] [for TIME]
///
///   TIME    1.5s, 200ms; `at` counts from the first publication
///   WHAT    kill, crash, stall, throttle, choke, partition, reset, corrupt, loss, delay, slowdisk, fulldisk, skew,
///           drift, leave, block, publish
///   WHO     worker 3, workers 3-6, origin, all; `publish` has none
///   to      the rate of throttle, choke and slowdisk
///   by      the number of chunks (corrupt), the share of frames (loss: 0.01), the time (delay, skew), or the share of
///           time (drift: 0.001)
///   from    the other side of a partition, or whose dials are blocked; without it, everybody's; of a block all
///   workers'
///
///   at 1.5s kill worker 3
///   at 2s   partition workers 4-6 from origin oneway for 3s
///
/// Errors: kInvalidArgument, naming the line.
[[nodiscard]] Result<std::vector<Fault>> parse_faults(std::string_view text);

/// One line of a fault file. Of a fault that a simulation of cores knows, parse_faults() reads it again.
[[nodiscard]] std::string to_text(const Fault& fault);

/// Whether only whole nodes have such a fault.
[[nodiscard]] constexpr bool needs_whole_nodes(FaultKind kind) { return kind >= FaultKind::kWipe; }

}  // namespace weightcast::sim
