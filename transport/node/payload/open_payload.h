#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/time.h"
#include "transport/core/manifest/manifest_trust.h"
#include "transport/core/origin/made_payload.h"

namespace weightcast {

/// When those who receive an open payload are told of what has been made since.
struct GrowthPace {
  Duration interval_min{};  ///< between two times
  double share_min = 0;     ///< of what was told, which has to be made in between
};

/// How far a payload is that is being made: which of its chunks are there, from the first on. Only whole parts of whole
/// chunks are told. Chunks are reported in any order, by any thread.
/// Each manifest that is told is signed by `author`.
/// Invariant: what is told only grows, and is followed by what close() tells.
class OpenPayload {
 public:
  /// `announced` is open and has no parts yet.
  OpenPayload(Manifest announced, GrowthPace pace, ManifestAuthor author = {});

  [[nodiscard]] const Manifest& announced() const { return announced_; }

  /// The chunks from `first` on, `bytes` together, are in the store's files; only the last of a payload is short. Each
  /// once. Returns what is to be told, if it is time to.
  std::optional<MadePayload> handle_made(Instant now, std::uint32_t first, std::span<const ContentDigest> digests,
                                         std::uint64_t bytes);

  /// Every chunk was reported: all of the payload, whose result has this digest.
  [[nodiscard]] MadePayload close(const Checksum& snapshot_digest) const;

 private:
  [[nodiscard]] MadePayload first_chunks(std::uint32_t chunks) const;

  const ManifestAuthor author_;
  const Manifest announced_;
  const GrowthPace pace_;

  mutable std::mutex mutex_;  // guards what follows
  std::vector<ContentDigest> digests_;
  std::uint32_t made_ = 0;                         // chunks, from the first without a hole
  std::uint32_t whole_end_ = ~std::uint32_t{0};    // the short chunk, once it is known
  std::map<std::uint32_t, std::uint32_t> beyond_;  // by first chunk: where ranges end that are made beyond a hole
  std::uint32_t told_ = 0;                         // chunks
  std::uint64_t bytes_ = 0;                        // reported
  Instant tell_at_{};
};

}  // namespace weightcast
