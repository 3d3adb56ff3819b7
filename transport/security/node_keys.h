#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "transport/security/certificate.h"
#include "transport/security/owner_only_file.h"

namespace weightcast {

/// How long before its end a certificate's expiry is warned of.
inline constexpr std::int64_t kExpiryWarning_s = 30 * kDay_s;

/// What one node needs to prove itself and to check others: its private key and certificate and the authority's
/// certificate; an origin's also the key that signs manifests. Invariant: each private key is its certificate's, and
/// `authority` has issued the certificates.
struct NodeKeys {
  UniqueKey key;
  UniqueX509 certificate;
  UniqueX509 authority;
  std::vector<UniqueX509> between;  ///< what others may need between a certificate of this cluster and the authority's
  UniqueKey signing_key;            ///< of an origin; else null
  UniqueX509 signing_certificate;
  CertificateInfo info;  ///< of `certificate`

  [[nodiscard]] Between issuers() const;
  [[nodiscard]] Role role() const { return info.use == KeyUse::kOrigin ? Role::kOrigin : Role::kWorker; }
  /// A sentence about the end of the certificate if it is near or past.
  [[nodiscard]] std::optional<std::string> expiry_warning(std::int64_t now_unix_s) const;
};

/// Reads the file that `keys init` or `keys issue` wrote. Errors, with the path and what to do in the detail: those of
/// read_owner_only(); those of parse_node_keys().
[[nodiscard]] Result<NodeKeys> read_node_keys(const std::filesystem::path& path, std::int64_t now_unix_s);

/// The PEM blocks of such a file, in any order; `what` names it in errors. Errors: kCorrupt (a block is missing, is
/// there twice, or does not parse), kNotAllowed (the authority has not issued the certificate), kTimedOut (expired, or
/// not valid yet).
[[nodiscard]] Result<NodeKeys> parse_node_keys(const std::string& text, const std::string& what,
                                               std::int64_t now_unix_s);

/// The text of such a file, with a first line for people.
[[nodiscard]] Secret to_text(const NodeKeys& keys);
[[nodiscard]] bool are_same(const NodeKeys& a, const NodeKeys& b);

/// The contents of a PEM text, in its order.
struct PemContents {
  std::vector<UniqueKey> keys;
  std::vector<UniqueX509> certificates;
};
/// Errors: kCorrupt (a block that does not parse, or more than 16 of them).
[[nodiscard]] Result<PemContents> read_pem(const std::string& text, const std::string& what);
void append_pem(std::string& text, EVP_PKEY* key);
void append_pem(std::string& text, X509* certificate);

}  // namespace weightcast
