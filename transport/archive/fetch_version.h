#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/files/file_system.h"
#include "transport/archive/object_store.h"
#include "transport/core/manifest/manifest.h"
#include "transport/security/node_keys.h"
#include "transport/security/revocations.h"

namespace weightcast {

struct FetchOptions {
  Version version{};             ///< kNoVersion: the newest that the archive leads to
  std::filesystem::path output;  ///< the directory that is made
  unsigned connections = 4;
  unsigned threads = 1;  ///< that apply patches
  /// Told how much has arrived of what was missing; on any thread. May be null.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = nullptr;
};

/// The version that was made, and from what.
struct FetchedVersion {
  Manifest manifest;                      ///< of what led to it last
  std::optional<CertificateInfo> signer;  ///< nothing without keys
  Version whole{};                        ///< that the patches lead on from
  std::uint32_t patches = 0;
  std::uint64_t received_bytes = 0;  ///< of payloads; the rest was there
};

/// Makes a version of an archive in a new directory. Payloads arrive in OUTPUT.fetch, as in a node's state directory,
/// and stay there until the version is complete: each chunk is checked against the records before it is written, so a
/// process that is killed loses chunks that were on their way, and the next one goes on with what is right. Recovery's
/// code then applies the patches, each of which must lead to the digest in its record. With `keys` each record must be
/// signed by an origin of that cluster, and the whole version's chunks are those of a SHA-256 that it signed. Blocks.
/// Errors: kAlreadyExists (the output), kBusy (another process makes it), kNotFound (no such version; an object is
/// missing), kNotAllowed (not signed, or by whom; the storage), kCorrupt (not what was published), kTimedOut, kNoSpace,
/// kIo.
[[nodiscard]] Result<FetchedVersion> fetch_version(FileSystem& files, ObjectStore& objects, const NodeKeys* keys,
                                                   const Revocations& revocations, const FetchOptions& options);

}  // namespace weightcast
