#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/core/action.h"
#include "transport/core/edge/download.h"
#include "transport/core/worker/worker_config.h"

namespace weightcast {

/// What a worker reads of one full payload from an archive, beside its parents. Pure. Owned by an Intake, with the
/// Download, which verifies the archive's chunks as any parent's and tells parents to skip them.
///
/// Parents send chunks from the payload's beginning on. The archive is asked for ranges from its end, a few at a time,
/// and of what parents still have to send each takes a share. So ranges become small where the two meet, and nothing
/// comes twice but what was on its way.
///
/// The rule: a worker reads from the archive while its parents bring less than ArchiveLimits::below, and while the
/// downlink has room beside them. A byte from the archive saves the time in which parents would have brought it, so
/// `below` is what time is worth over what a byte costs (docs/ARCHIVE.md).
///
///   the archive                          then
///   lacks the version, does not answer   it is asked again after a pause, which doubles from kPauseMin to kPauseMax
///   fails in a range, or stalls          parents are asked for the rest of that; no other is begun in such a pause
///   lies, or serves no ranges            parents are asked for all that was expected of it, and it is not asked again
///                                        for this payload
///   is slower than parents at the end    what it has not brought is left to the parents
///
/// Invariant: what is expected of the archive is in a range that is asked for.
class ArchiveDownload {
 public:
  static constexpr Duration kPauseMin = std::chrono::seconds(1);
  static constexpr Duration kPauseMax = std::chrono::seconds(60);
  /// A range without a chunk for so long fails; longer where the archive's rate has a cap that makes chunks rare.
  static constexpr Duration kPatience = std::chrono::seconds(15);
  static constexpr std::uint64_t kRangeBytesFirst = kMiB;
  static constexpr std::uint64_t kRangeBytesMax = 8 * kMiB;

  /// All outlive it. `requests` numbers requests of all downloads of a worker, so that late answers are known as such.
  ArchiveDownload(const WorkerConfig& config, Download& download, const Holding& holding, ActionQueue& actions,
                  std::uint32_t& requests)
      : config_(config), download_(download), holding_(holding), actions_(actions), requests_(requests) {}

  /// The store has told what is on disk, and the payload is not open.
  void handle_ready(Instant now);
  /// The answer to action::FindArchived: the digests of all chunks. Returns whether they are the payload's.
  bool handle_found(Instant now, std::uint32_t request, Result<std::vector<ContentDigest>> digests);
  /// A chunk of action::ReadArchived. Returns whether it was new and right.
  bool handle_chunk(Instant now, std::uint32_t request, const ChunkArrival& chunk);
  /// action::ReadArchived has come to its end.
  void handle_ended(Instant now, std::uint32_t request, const Status& status);
  void handle_disk_behind(Instant now, bool is_behind);
  void handle_timeout(Instant now);
  [[nodiscard]] std::optional<Instant> poll_deadline() const;
  /// Nothing more is read.
  void cancel();

  /// Of chunks that were new and right.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Why nothing is read now, in a few words; "" while something is, or nothing is left to read.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

 private:
  enum class State : std::uint8_t { kWaiting, kFinding, kReading, kPausing, kGivenUp };
  struct Range {
    ChunkIndex first{};
    std::uint32_t chunks = 0;
    std::uint32_t brought = 0;
    Instant asked_at{};
    Instant heard_at{};
  };

  void find(Instant now);
  void ask_for_more(Instant now);
  /// What all ranges together may bring now; nothing if the archive is not to be asked.
  [[nodiscard]] std::optional<Rate> allowance() const;
  /// Ends the ranges for which `is_over` holds, and leaves what they have not brought to parents. Returns whether there
  /// were any.
  bool drop(Instant now, const std::function<bool(const Range&)>& is_over);
  /// All of it has failed, for now or for good.
  void fail(Instant now, const Error& why);
  /// Ranges for which `is_over` holds have.
  void fail_ranges(Instant now, const std::function<bool(const Range&)>& is_over, const Error& why);
  /// Says so once.
  void note_trouble(const Error& why, std::string_view then);
  /// The pause that follows one more failure.
  [[nodiscard]] Duration next_pause();
  /// Parents have sent all else, and would bring what a range lacks sooner.
  void leave_to_parents(Instant now);
  void measure_parents(Instant now);
  [[nodiscard]] Duration patience() const;
  [[nodiscard]] bool is_done() const { return ranges_.empty() && download_.wanted_of_parents() == 0; }

  const WorkerConfig& config_;
  Download& download_;
  const Holding& holding_;
  ActionQueue& actions_;
  std::uint32_t& requests_;
  State state_ = State::kWaiting;
  std::uint32_t finding_ = 0;  // the request
  std::map<std::uint32_t, Range> ranges_;
  std::uint64_t range_bytes_ = kRangeBytesFirst;
  ChunkIndex below_{UINT32_MAX};  // no chunk from here on is wanted of parents, but what was left to them again
  std::uint32_t failures_ = 0;    // since the last chunk
  bool told_ = false;             // of a failure, in the log
  bool left_to_parents_ = false;
  bool disk_is_behind_ = false;
  std::optional<Instant> retry_at_;
  Instant next_range_at_{};
  std::optional<Instant> look_at_;  // at the parents' rate, and at the ranges
  double parents_bytes_per_s_ = 0;  // by the plan, then measured
  bool parents_known_ = false;      // either of them
  Instant measured_at_{};
  std::uint64_t measured_bytes_ = 0;
  std::uint64_t bytes_ = 0;
  std::string trouble_;
};

}  // namespace weightcast
