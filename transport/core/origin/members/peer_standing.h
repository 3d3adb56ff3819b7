#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/settings/words.h"

namespace weightcast {

/// Where a plan may place a member, from everywhere to nowhere above others.
enum class Standing : std::uint8_t {
  kSeed,         ///< anywhere; by its score it may receive from the origin
  kTail,         ///< behind everyone of kSeed, but may still forward
  kRolloutOnly,  ///< receives as a leaf and keeps rolling out
};

constexpr Words<3> words_of(Standing) { return {"seed", "tail", "rollout-only"}; }

/// What a member did wrong. Its children say so; if two parents fed it slowly, its own reports do.
enum class PeerFault : std::uint8_t { kClosed, kSlow, kCorrupt };

/// What outlives the process.
struct PeerStandingRecord {
  Standing standing = Standing::kSeed;
  std::uint32_t strikes = 0;
  std::uint32_t corrupt = 0;
  std::uint32_t clean_in_a_row = 0;
  std::uint32_t demotions = 0;
  bool operator==(const PeerStandingRecord&) const = default;
};

/// Decides where a member may stand, from the faults of its forwarding. Pure. Changes standing only when a publication
/// ends, so that the order of a plan in use never changes under it.
///
///   kSeed --demote--> kTail --demote--> kRolloutOnly      demote: kStrikesToDemote strikes
///     any --bar--> kRolloutOnly, for kCleanBarred          bar: kCorruptToBar publications with damaged bytes, ever
///                  clean publications
///   kRolloutOnly --readmit--> kTail --readmit--> kSeed    readmit: clean_needed() clean publications in a row
///
/// A publication with faults adds at most one strike, because all children of a failing relay complain at once. A clean
/// one takes one away. Each demotion doubles the clean publications needed, up to kCleanMax. So a member that comes and
/// goes does not take a chain with it each time. Slowness takes a member whose uplink nobody has told or measured no
/// further than kTail: it may be honest, and a plan that knows the uplink gives it no more than that carries.
/// Invariant: strikes < kStrikesToDemote between publications; barred() implies kRolloutOnly.
class PeerStanding {
 public:
  static constexpr std::uint32_t kStrikesToDemote = 2;
  static constexpr std::uint32_t kCorruptToBar = 2;
  static constexpr std::uint32_t kCleanMin = 4;
  static constexpr std::uint32_t kCleanMax = 64;
  /// Witnesses who conspire can have an honest member barred, so it does not last for ever.
  static constexpr std::uint32_t kCleanBarred = 256;

  PeerStanding() = default;
  /// Values out of range are brought into it, as the record may come from a file.
  explicit PeerStanding(const PeerStandingRecord& record);

  /// `at_most`: the fault takes the member no further.
  void handle_fault(PeerFault fault, Standing at_most = Standing::kRolloutOnly);
  /// `took_part`: it received the payload. A member earns no trust by publications that it did not receive.
  void handle_publication_end(bool took_part);

  [[nodiscard]] Standing standing() const { return record_.standing; }
  /// In the publication that runs.
  [[nodiscard]] bool faulted() const { return faulted_.has_value(); }
  [[nodiscard]] bool barred() const { return record_.corrupt >= kCorruptToBar; }
  /// Clean publications in a row until the next readmission.
  [[nodiscard]] std::uint32_t clean_needed() const;
  [[nodiscard]] const PeerStandingRecord& record() const { return record_; }

 private:
  void demote(Standing at_most);

  PeerStandingRecord record_;
  std::optional<Standing> faulted_;  // in the publication that runs, and how far that takes it
  bool corrupted_ = false;           // in the same
};

/// A member in the order of a plan.
struct RankedPeer {
  PeerId id{};
  Standing standing = Standing::kSeed;
  double score = 0;
};

/// Sorts the best first: by standing, then by score, then by id, which is the order of joining. Scores count in steps
/// of 0.05, so that noise does not move connections about.
void rank_peers(std::vector<RankedPeer>& peers);

}  // namespace weightcast
