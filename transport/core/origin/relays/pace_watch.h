#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "transport/core/plan/plan.h"

namespace weightcast {

/// Compares what members still lack of one payload with what their parents lacked, and finds edges that are far too
/// slow. Needs no rate that anybody configured or predicted, nor a parent's word about an edge: a parent that says
/// UpToDate and sends a chunk now and then is found like one that sends nothing.
///
/// A child lags behind its parent in a stripe if over a window of kWindow
///   - the parent had kSlackChunks more at the window's beginning than the child has at its end: it always had more to
///     send; and
///   - the child got less than 1 / kLagFactor of the pace that it, or half of the members, once had in this payload; or
///     less than 1 / kHoardFactor of what the plan predicts, or of its share (with the parent's other children) of the
///     pace at which the parent itself once received, the child has received its last payload, or half of the members,
///     or of the origin's children, say that they have received this one; and
///   - the child got less than 1 / kPlannedFactor of what the plan predicts, if it predicts anything: a link that is
///     known to be slow is slow with any parent.
/// Where even that would bring fewer than kChunksJudged chunks in a window, nobody lags: a child that gets no chunk for
/// a second says so itself.
///
/// What a parent lacks is its own word. A parent that names more than it lacks lags behind its own parent by that word.
/// Of lagging edges below one another only the highest is told, as the others wait for it.
/// Pure. Owned by a FaultAttribution, one for each payload. Invariant: of a member it keeps the samples of kKept and
/// one older, at most 16 in kWindow.
class PaceWatch {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(2);
  /// A parent's sample from the beginning of its child's window may be older than the window.
  static constexpr Duration kKept = 2 * kWindow;
  static constexpr std::uint32_t kSlackChunks = 2;
  static constexpr double kChunksJudged = 2;
  static constexpr Duration kPeakOver = std::chrono::milliseconds(400);
  static constexpr double kLagFactor = 3;
  static constexpr double kHoardFactor = 8;
  static constexpr double kPlannedFactor = 2;
  /// A member that was silent for longer within a window is not judged by it.
  static constexpr Duration kGapMax = std::chrono::milliseconds(1500);

  struct Lag {
    PeerId parent{};
    PeerId child{};
    std::uint32_t stripe = 0;
    /// Less than 1 / kHoardFactor of the pace that it, or half of the members or of the origin's children, once had.
    /// Members that have the payload count with what they say: most have it before a heartbeat could tell.
    bool far_behind = false;
  };

  /// A member's heartbeat: how many chunks it lacks of each stripe of the plan.
  void handle_progress(Instant now, PeerId member, std::vector<std::uint32_t> missing);
  /// A member says at which pace it has received the payload, all stripes together.
  void handle_received(PeerId member, double chunks_per_s) { watched_[member].received_chunks_per_s = chunks_per_s; }

  /// A member of the plan, by its place there.
  struct Known {
    bool has_all = false;               ///< holds the whole payload
    double predicted_chunks_per_s = 0;  ///< by the plan, all stripes together; 0: rates are not known
    double before_chunks_per_s = 0;     ///< at which it has received its last payload, in chunks of this one; 0: none
  };
  /// The edges on which the child lags, those from the origin included. Costs O(members * stripes).
  [[nodiscard]] std::vector<Lag> lagging(Instant now, const Plan& plan, const std::vector<Known>& members);

 private:
  struct Sample {
    Instant at{};
    std::vector<std::uint32_t> missing;
  };
  struct Watched {
    std::deque<Sample> samples;  // the oldest first
    std::vector<double> best;    // chunks per second in any window, by stripe
    std::vector<double> peak;    // the same between two heartbeats
    double received_chunks_per_s = 0;
    std::vector<std::pair<PeerId, Instant>> fed_by;  // by stripe, and since when the plan says so
  };
  struct Pace {
    double chunks_per_s = 0;
    std::uint32_t missing = 0;  // at the end
    Instant from{};
  };

  /// Of the last window; nothing if it has no full one, or a gap.
  [[nodiscard]] static std::optional<Pace> pace_of(Instant now, const Watched& watched, std::uint32_t stripe);
  /// What it lacked at that time.
  [[nodiscard]] static std::optional<std::uint32_t> missing_at(const Watched& watched, Instant at,
                                                               std::uint32_t stripe);
  /// Between the last two heartbeats; 0 if they are too close together to tell.
  [[nodiscard]] static double latest_pace(const Watched& watched, std::uint32_t stripe);
  [[nodiscard]] static double median(std::vector<double> values);

  std::map<PeerId, Watched> watched_;
};

}  // namespace weightcast
