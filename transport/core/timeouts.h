#pragma once

#include "base/time.h"

namespace weightcast {

/// Every bound on waiting in the core, in one place. The defaults are for wide-area links.
struct Timeouts {
  /// How often a worker reports to its origin; the origin tells it when it joins.
  Duration heartbeat = std::chrono::milliseconds(500);
  /// Origin: a worker that is silent for this long is lost.
  Duration silence = std::chrono::seconds(5);
  /// Worker: an origin that is silent for this long is redialled. Longer, because who dials anew has left the plan and
  /// comes back at another place of it, while downloads do well without an origin.
  Duration origin_silence = std::chrono::seconds(10);
  /// A parent that was left for another place in the plan may still have chunks on the way; until they have come, or
  /// for this long, the new parent is not asked, so that nothing comes twice.
  Duration draining = std::chrono::milliseconds(500);
  /// A connection that says nothing after it was made.
  Duration greeting = std::chrono::seconds(10);
  /// A child's subscription to a version that this node has not begun. Shorter than a child's patience, so that a
  /// parent which is busy with an older version says so before it is taken for a silent one.
  Duration unknown_version = std::chrono::milliseconds(500);
  /// A parent tells a child that it has nothing more, or had not for a moment since it said so last, this often.
  Duration up_to_date = std::chrono::milliseconds(250);
  /// A child's patience with a parent that sends neither chunks nor that it has none.
  Duration parent_silence = std::chrono::milliseconds(1000);
  /// A child that has got nothing for so long says so to the origin, and again each half of it.
  Duration starving = std::chrono::milliseconds(1000);
  /// A child's patience with a parent that says for ever that it has nothing more: far beyond a stall of the origin.
  Duration starvation = std::chrono::seconds(10);
  /// The span over which a parent's rate is judged; longer where chunks come more slowly than a dozen in it.
  Duration rate_window = std::chrono::milliseconds(1000);
  /// Redialling starts here, doubles, and stops growing at the second.
  Duration redial_min = std::chrono::milliseconds(50);
  Duration redial_max = std::chrono::seconds(2);
};

}  // namespace weightcast
