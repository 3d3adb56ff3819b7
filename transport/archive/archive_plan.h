#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/archive/archive_index.h"

namespace weightcast {

// Decides which payload an archive takes next, and which ones lead to a version. Pure: no I/O, no clock.

/// A payload that a node has, and an archive may want.
struct LoggedPayload {
  PayloadId id{};
  std::string files;           ///< files_key() of the snapshot
  bool provable = false;       ///< of a whole version: there is a SHA-256 of it that counts
  bool may_get_patch = false;  ///< of a whole version: it is so new that the patch to it may still be made
};

/// The payload that the archive takes next; nothing while it has all that counts. Patches come first, then whole
/// versions, each oldest first. A version comes whole if the archive has none, if no patch leads to it, or if it is at
/// least the `every`-th after the last whole one. Versions older than the archive's newest one are not added any more.
[[nodiscard]] std::optional<PayloadId> next_to_archive(const ArchiveIndex& index, std::span<const LoggedPayload> logged,
                                                       std::uint64_t every);

/// The payloads that lead to `version`: the nearest whole one at or below it, then patches. kNoVersion: to the newest.
/// Errors: kNotFound, which says what there is.
[[nodiscard]] Result<std::vector<ArchivedPayload>> way_to(const ArchiveIndex& index, Version version);

/// The newest version that the archive leads to; kNoVersion: none.
[[nodiscard]] Version newest_in(const ArchiveIndex& index);

}  // namespace weightcast
