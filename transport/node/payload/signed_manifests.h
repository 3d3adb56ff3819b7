#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/time.h"
#include "transport/core/manifest/manifest_trust.h"
#include "transport/security/tls.h"

namespace weightcast {

/// Signs manifests with an origin's key. Any thread signs.
class SigningKey final : public ManifestSigner {
 public:
  /// `keys` are an origin's.
  explicit SigningKey(const NodeKeys& keys) { set_keys(keys); }
  /// Signs with the key of these from now on.
  void set_keys(const NodeKeys& keys);
  [[nodiscard]] ManifestSignature sign(std::string_view statement) const override;

 private:
  struct Held {
    UniqueKey key;
    std::string certificates;  // DER: its own, and those between it and the authority
  };

  mutable std::mutex mutex_;
  std::shared_ptr<const Held> held_;  // guarded
};

/// What a worker demands of versions beyond their signatures.
struct TrustOptions {
  Duration age_max{};  ///< since a version was published, when it is announced; 0: any
};

/// Trusts manifests that a signing key of this node's cluster vouches for, unless its certificate is revoked.
class ClusterTrust final : public ManifestTrust {
 public:
  ClusterTrust(std::shared_ptr<const TlsContext> tls, TrustOptions options) : tls_(std::move(tls)), options_(options) {}

  void set_options(TrustOptions options) { options_ = options; }

  [[nodiscard]] Status check(const Manifest& manifest) const override;
  [[nodiscard]] Status check_stored(const Manifest& manifest) const override;

 private:
  const std::shared_ptr<const TlsContext> tls_;
  TrustOptions options_;
};

/// Who signed `manifest`, if the authority of `keys` vouches for the certificate that comes with it, `revocations` does
/// not end it, and it counted at `unix_s`. Errors: those of ManifestTrust::check().
[[nodiscard]] Result<CertificateInfo> check_manifest(const Manifest& manifest, const NodeKeys& keys,
                                                     const Revocations& revocations, std::int64_t unix_s);

/// The same of what was accepted before: it counts now, or it did when it was published. Whatever check_manifest()
/// accepts now, this does, too: the clock of whoever published it may have been wrong, and an origin signs what it has
/// stored again, with a key that may be younger. Errors: those of when it was published.
[[nodiscard]] Result<CertificateInfo> check_accepted_manifest(const Manifest& manifest, const NodeKeys& keys,
                                                              const Revocations& revocations, std::int64_t now_unix_s);

/// Whether an origin's signing key counts at `unix_s`, by this host's clock. Errors: kTimedOut, which says what to do.
[[nodiscard]] Status check_may_sign(const NodeKeys& keys, std::int64_t unix_s);

}  // namespace weightcast
