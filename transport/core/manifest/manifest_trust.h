#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "transport/core/manifest/manifest.h"

namespace weightcast {

/// What a manifest's signature is over: a text for nothing else, and every field that decides what is installed. The
/// part digests stand in it by their root, the file table by its digest. An open manifest's statement is about what
/// there is so far. docs/PROTOCOL.md has the layout.
[[nodiscard]] std::string signed_statement(const Manifest& manifest);
/// Of names, sizes, modes and their order.
[[nodiscard]] ContentDigest digest_of_files(const std::vector<SnapshotFile>& files);

/// Signs what an origin says of payloads. Any thread.
class ManifestSigner {
 public:
  virtual ~ManifestSigner() = default;
  [[nodiscard]] virtual ManifestSignature sign(std::string_view statement) const = 0;
};

/// Judges whether an origin of this node's cluster vouches for a manifest. Loop thread only.
class ManifestTrust {
 public:
  virtual ~ManifestTrust() = default;
  /// One that is to be received. Errors: kNotAllowed (not signed, wrongly signed, or by a key that may not or no longer
  /// sign), kTimedOut (the key's certificate has expired, or the version is too old to be begun).
  [[nodiscard]] virtual Status check(const Manifest& manifest) const = 0;
  /// One that was accepted before: it counts now, or its key did at the time that it states. Errors: as check().
  [[nodiscard]] virtual Status check_stored(const Manifest& manifest) const = 0;
};

/// Who an origin's manifests are from.
struct ManifestAuthor {
  RunId run{};
  std::shared_ptr<const ManifestSigner> signer;  ///< null: nothing is signed

  void sign(Manifest& manifest) const {
    manifest.run = run;
    manifest.signature = signer ? signer->sign(signed_statement(manifest)) : ManifestSignature{};
  }
};

}  // namespace weightcast
