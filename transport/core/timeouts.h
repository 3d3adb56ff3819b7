#pragma once

#include "base/time.h"

namespace weightcast {

/// Every bound on waiting in the core, in one place. The defaults are for wide-area links.
struct Timeouts {
  /// How often a worker reports to its origin; the origin tells it when it joins.
  Duration heartbeat = std::chrono::milliseconds(500);
  /// Origin: a worker that is silent for this long is lost.
  Duration silence = std::chrono::seconds(5);
  /// Worker: an origin that is silent for this long is redialled. Longer than `silence`, because a worker that dials
  /// anew loses its place in the plan, and downloads go on without an origin.
  Duration origin_silence = std::chrono::seconds(10);
  /// After a move by a new plan the old parent may still have chunks on the way. The child asks the new parent when
  /// they have come, or after this long, so that no chunk comes twice.
  Duration draining = std::chrono::milliseconds(500);
  /// A connection that says nothing after it was made.
  Duration greeting = std::chrono::seconds(10);
  /// How long a subscription waits for a version that this node has not begun. Shorter than a child's patience, so that
  /// the child does not take a parent that is busy with an older version for a silent one.
  Duration unknown_version = std::chrono::milliseconds(500);
  /// How often a parent says UpToDate while it has nothing more, or had nothing for a moment since the last one.
  Duration up_to_date = std::chrono::milliseconds(250);
  /// A child's patience with a parent that sends neither chunks nor UpToDate.
  Duration parent_silence = std::chrono::milliseconds(1000);
  /// A child's patience with a parent that it dials: until the connection is made and encrypted. Beyond the second
  /// after which TCP sends the first packet once more.
  Duration dial = std::chrono::milliseconds(1250);
  /// From then on it dials the next ancestor, too, so as to have it when its patience ends.
  Duration dial_beside = std::chrono::milliseconds(750);
  /// A child without a chunk for so long tells the origin, and repeats that after each half of it.
  Duration starving = std::chrono::milliseconds(1000);
  /// A child's patience with a parent that says UpToDate for ever; far beyond a stall of the origin.
  Duration starvation = std::chrono::seconds(10);
  /// The span over which a parent's rate is judged; longer where chunks come more slowly than a dozen in it.
  Duration rate_window = std::chrono::milliseconds(1000);
  /// Redialling starts here, doubles, and stops growing at the second.
  Duration redial_min = std::chrono::milliseconds(50);
  Duration redial_max = std::chrono::seconds(2);
};

}  // namespace weightcast
