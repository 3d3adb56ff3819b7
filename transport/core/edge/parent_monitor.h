#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "transport/core/timeouts.h"

namespace weightcast {

/// The child's measurement of one parent for one stripe: how much came, when, and what the parent said. It judges; the
/// Download that owns it moves. Pure.
///
///   verdict   when                                                                   then
///   SLOW      a window brought less than half of what is expected, and the parent    the child leaves; an only parent
///             had more to send all that time                                         it keeps, and reports
///   SILENT    neither chunk, digest part nor UpToDate for the patience; or a window  the child leaves; an only parent
///             brought too little and its last half nothing                           has 20 times the patience, and a
///                                                                                    second such window is SLOW
///   STARVED   no chunk for Timeouts::starvation, or the predicted time of 4 chunks,  the child leaves; an only parent
///             whatever the parent says, though there are chunks that it lacks        it keeps
///   STALLED   this stream has been silent for Timeouts::parent_silence, while        the child dials the same parent
///             another stream of the same edge brought 16 chunks of the same stripe   anew, and blames nobody
///   fine      else
///
/// window         Timeouts::rate_window, or the time of 12 chunks at the expected rate; it slides by quarters. A window
///                is judged when it is full, not while the payload is open, and not between UpToDate and the next
///                chunk. A parent that has nothing more passes on all that it gets, so the delay is further up
///                (head-of-line blocking). After UpToDate the quarters before the next chunk count as having brought
///                what was expected.
/// expected rate  the plan's prediction. A SLOW parent, or a second SILENT one in a row, halves it. A full window that
///                brought 1.5 times as much doubles it. So a child on a slow link settles. Without a prediction nothing
///                is expected, and no parent is SLOW.
/// patience       Timeouts::parent_silence, or the time of 4 chunks at the expected rate. Without a prediction each
///                further SILENT parent doubles it, up to a minute, because a chunk may take longer on all their links.
///                A window of chunks without a pause halves it. Where this node is late itself, allowance() is added,
///                also for STALLED.
///
/// The 16 chunks of STALLED double with each STALLED in a row, so that a stream which is much slower than the others
/// brings its chunks in the end.
///
/// A child that has been without a chunk for Timeouts::starving says so to the origin, again and again, and stays: see
/// starvation(). That alone moves nobody; the origin sees which relays say the same of themselves. Streams that share
/// a stripe of the plan starve together or not at all.
/// Invariant: a verdict other than fine is given once per window.
class ParentMonitor {
 public:
  enum class Verdict : std::uint8_t { kFine, kSlow, kSilent, kStarved, kStalled };

  /// What the measurements are judged by.
  struct Edge {
    bool missing = false;      ///< chunks of the stripe are known and lacking
    bool open = false;         ///< the payload is still being made
    bool only_parent = false;  ///< there is no other ancestor
    std::uint32_t chunk_bytes = 0;
    Duration late{};  ///< by which this node's own deadlines were met too late, lately
  };

  /// What is added to the patience of a node that is late itself: what it waits for may be here, and unread, and its
  /// parents may share its processors.
  [[nodiscard]] static Duration allowance(Duration late);

  /// What is said to the origin by a child that gets nothing.
  struct Starvation {
    bool parent_idle = false;  ///< the parent says that it has nothing more; else it is only late
    Duration lasts{};
  };

  explicit ParentMonitor(const Timeouts& timeouts) : timeouts_(&timeouts) {}

  /// By the plan; 0: it predicts nothing. `streams`: as many share the stripe of the plan, with this pace each.
  void expect(double bytes_per_s, std::uint32_t streams = 1);
  /// The parent was dialled, or asked: measuring begins anew.
  void handle_asked(Instant now);
  /// A digest part, or a chunk of whatever stripe.
  void handle_heard(Instant now) {
    heard_at_ = parent_heard_at_ = now;
    chunks_beside_ = 0;
  }
  void handle_up_to_date(Instant now);
  /// A chunk of the stripe, which was lacking. `from_parent`: it came from the parent of now.
  void handle_chunk(Instant now, std::uint32_t bytes, bool from_parent, const Edge& edge);
  /// Chunks came from elsewhere than from parents. They may have taken the link that the parent was to fill, so the
  /// window counts them as the parent's.
  void handle_elsewhere(std::uint32_t bytes) { quarter_bytes_.back() += bytes; }
  /// A chunk came to another stream that shares this one's stripe of the plan. `same_parent`: from the same parent.
  void handle_chunk_beside(Instant now, bool same_parent);
  /// The payload has grown. `was_missing`: chunks of the stripe were lacking before.
  void handle_grown(Instant now, bool was_missing);
  /// The stripe lacks chunks from now on.
  void handle_hungry(Instant now) { hungry_since_ = reported_at_ = now; }
  /// The parent was left for this; `again`: no chunk has come since another was left.
  void handle_left(Verdict verdict, bool again);
  /// The only parent is SLOW, and kept.
  void handle_kept(Instant now);

  /// To be asked when deadline() has passed.
  [[nodiscard]] Verdict judge(Instant now, const Edge& edge);
  /// What to tell the origin now; nothing if the stripe does not starve, or the origin was told a moment ago. Works
  /// while no parent is connected, too.
  [[nodiscard]] std::optional<Starvation> starvation(Instant now, const Edge& edge);

  /// The last chunk, or when the stripe began to lack some, whoever was the parent.
  [[nodiscard]] Instant hungry_since() const { return hungry_since_; }
  /// When judge() may have a verdict.
  [[nodiscard]] Instant deadline(const Edge& edge) const;
  /// When starvation() may have something to say; absent if nothing is missing.
  [[nodiscard]] std::optional<Instant> starvation_due(const Edge& edge) const;

 private:
  static constexpr std::uint32_t kQuarters = 4;
  static constexpr std::uint32_t kChunksBesideMin = 16;
  static constexpr std::uint32_t kChunksBesideMax = 1 << 20;

  [[nodiscard]] bool is_judged(const Edge& edge) const {
    return expected_bytes_per_s_ > 0 && !parent_idle_ && !edge.open;
  }
  [[nodiscard]] Duration window(const Edge& edge) const;
  [[nodiscard]] Duration patience(const Edge& edge) const;
  /// Without a chunk on any of `streams` for so long a child starves: `least`, or the time of kChunksPatience chunks by
  /// the plan.
  [[nodiscard]] Duration starvation_time(const Edge& edge, Duration least, std::uint32_t streams = 1) const;
  [[nodiscard]] Verdict judge_window(Instant now, const Edge& edge);
  void restart_window(Instant now);
  void expect_less();
  void expect_more();

  const Timeouts* timeouts_;
  double predicted_bytes_per_s_ = 0;
  std::uint32_t streams_ = 1;
  double expected_share_ = 1;  // of what is predicted, by what parents have given so far; of the pace of chunks, too
  double expected_bytes_per_s_ = 0;
  Instant steady_since_{};  // chunks have come without a long pause
  Instant heard_at_{};
  Instant parent_heard_at_{};  // on this stream or on another one to the same parent
  Instant fed_at_{};           // the last chunk, or when the parent was asked
  Instant hungry_since_{};     // the last chunk, or when the stripe began to lack some, whoever was the parent
  Instant reported_at_{};      // when the origin was told last; or hungry_since_
  // A window that slides by a quarter at a time: what came in each, the youngest last.
  Instant quarter_start_{};
  std::array<double, kQuarters> quarter_bytes_{};
  std::uint32_t quarters_ = 0;    // that have passed since it was restarted, until there are enough
  bool parent_idle_ = false;      // it said that it has nothing more, or stalled and cannot be left
  bool said_up_to_date_ = false;  // since the last chunk
  bool stalled_before_ = false;   // it could not be left, and has not been well since
  // Of streams beside this one, since this one was heard; and how many of them make it STALLED.
  std::uint32_t chunks_beside_ = 0;
  std::uint32_t chunks_beside_max_ = kChunksBesideMin;
};

}  // namespace weightcast
