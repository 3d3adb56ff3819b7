#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "security/node_keys.h"
#include "security/revocations.h"
#include "transport/core/manifest.h"

namespace weightcast {

/// What was proven of a version on disk.
struct ProvenVersion {
  Manifest manifest;
  CertificateInfo signer;  ///< the signing key's certificate
};

/// Proves that the directory of a complete version, DIR/versions/N, holds what an origin of the cluster of `keys`
/// published under that number, byte for byte: by the signature over the manifest in its record, the certificate that
/// came with it, and the SHA-256 of every byte of its files. `threads` hash. Nobody without the origin's signing key
/// can make another version pass, whatever he writes below DIR. Blocks. Errors: kNotAllowed (the signature, or who
/// signed it), kTimedOut (its certificate did not count when the version was published), kCorrupt (the bytes, or the
/// record), kNotFound (no such version, or no record of it), kIo.
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
