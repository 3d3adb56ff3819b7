#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/peer_identity.h"
#include "base/result.h"
#include "security/openssl.h"

namespace weightcast {

/// The use that a certificate allows of its key.
enum class KeyUse : std::uint8_t {
  kAuthority,  ///< sign certificates and the list of revoked ones
  kOrigin,     ///< speak as the origin
  kWorker,     ///< speak as a worker
  kSigning,    ///< sign manifests
};

[[nodiscard]] std::string_view to_string(KeyUse use);

/// The contents of a certificate of ours. All of it is vouched for only by whoever signed it.
struct CertificateInfo {
  KeyUse use = KeyUse::kWorker;
  std::string name;     ///< of the node; of the authority: its cluster
  std::string serial;   ///< lower-case hexadecimal
  std::string cluster;  ///< of the one that issued it
  KeyId key;
  std::int64_t not_before_unix_s = 0;
  std::int64_t not_after_unix_s = 0;
};

/// A certificate that is to be made. Every key is an Ed25519 key.
struct CertificateRequest {
  KeyUse use = KeyUse::kWorker;
  std::string name;  ///< follows check_node_name(); of the authority ignored
  EVP_PKEY* key = nullptr;
  std::int64_t not_before_unix_s = 0;
  std::int64_t not_after_unix_s = 0;
};

/// A new Ed25519 key.
[[nodiscard]] UniqueKey make_key();
[[nodiscard]] KeyId key_id(EVP_PKEY* key);
/// The name of the cluster whose authority has this key: 16 hexadecimal digits of the key's id.
[[nodiscard]] std::string cluster_of(EVP_PKEY* authority_key);

/// Makes a certificate with a random serial. It names the node in one alternative name, "weightcast:USE/NAME".
/// `authority` is null for the authority's own certificate, which `signer` then signs for itself.
[[nodiscard]] UniqueX509 make_certificate(const CertificateRequest& request, X509* authority, EVP_PKEY* signer);

/// Reads a certificate from anywhere. Errors: kCorrupt (not of the form that make_certificate() gives: a name that
/// breaks the rules, several names, a node's certificate that could sign others, another kind of key).
[[nodiscard]] Result<CertificateInfo> read_certificate(X509* certificate);

/// Whether `authority` has issued `certificate`, and it is valid at `now_unix_s`. Errors (the detail begins with what
/// is wrong, for a text such as "FILE: ..."): kNotAllowed (another cluster's), kTimedOut (expired, or not valid yet).
[[nodiscard]] Status check_issued(X509* certificate, X509* authority, std::int64_t now_unix_s);

/// "2027-11-22 16:40 UTC".
[[nodiscard]] std::string date_of(std::int64_t unix_s);
/// The host's clock.
[[nodiscard]] std::int64_t unix_now_s();

}  // namespace weightcast
