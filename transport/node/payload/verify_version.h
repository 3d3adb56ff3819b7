#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "transport/core/manifest/manifest.h"
#include "transport/security/node_keys.h"
#include "transport/security/revocations.h"

namespace weightcast {

/// What was proven of a version on disk, and by what.
struct ProvenVersion {
  Manifest manifest;
  CertificateInfo signer;     ///< the signing key's certificate
  Version by{};               ///< whose SHA-256 the origin signed: the version itself, or one before it
  std::uint32_t patches = 0;  ///< signed ones that lead on from `by`
};

/// Proves that the directory of a complete version, DIR/versions/N, holds what an origin of the cluster of `keys`
/// published under that number, byte for byte: by the signature over the manifest in its record, the certificate that
/// came with it, and the SHA-256 of every byte of its files; `threads` hash. The origin may have signed no SHA-256 of a
/// version that it published by its patch. That is compared with what signed patches make of an earlier version that is
/// here and whose SHA-256 it has signed, while all pass by: a segment of each patch is in memory, and nothing is
/// written. Nobody without the origin's signing key can make another version pass, whatever he writes below DIR.
/// Blocks. Errors: kNotAllowed (the signature, or who signed it; or nothing here proves the version), kTimedOut (its
/// certificate did not count when the version was published), kCorrupt (the bytes, or the record; of the version, of a
/// patch or of what they lead on from), kNotFound (no such version, or no record of it), kIo.
[[nodiscard]] Result<ProvenVersion> verify_version(FileSystem& files, const std::filesystem::path& version,
                                                   const NodeKeys& keys, const Revocations& revocations,
                                                   unsigned threads);

/// The directories of the complete versions of a state directory, oldest first; `path` itself if it is one of a
/// version. Errors: kNotFound (it is neither, or holds no version).
[[nodiscard]] Result<std::vector<std::filesystem::path>> versions_below(FileSystem& files,
                                                                        const std::filesystem::path& path);
/// The state directory of the version in that directory, which may be in memory.
[[nodiscard]] std::filesystem::path state_directory_of(FileSystem& files, const std::filesystem::path& version);

}  // namespace weightcast
