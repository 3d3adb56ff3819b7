#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/peer_identity.h"
#include "base/result.h"
#include "base/settings/words.h"
#include "transport/security/openssl.h"

namespace weightcast {

inline constexpr std::int64_t kDay_s = 86'400;
/// A certificate counts from so long before its issue: hosts whose clocks are behind take it, too.
inline constexpr std::int64_t kClockSkew_s = 3600;

/// The use that a certificate allows of its key.
enum class KeyUse : std::uint8_t {
  kAuthority,  ///< sign certificates and the list of revoked ones
  kOrigin,     ///< speak as the origin
  kWorker,     ///< speak as a worker
  kSigning,    ///< sign manifests
  kEnrolment,  ///< sign certificates of workers
};

constexpr Words<5> words_of(KeyUse) { return {"authority", "origin", "worker", "signing", "enrolment"}; }

/// The contents of a certificate of ours. All of it is vouched for only by whoever signed it.
struct CertificateInfo {
  KeyUse use = KeyUse::kWorker;
  std::string name;                    ///< of the node; of the authority: its cluster
  std::vector<std::string> addresses;  ///< hosts at which the node may be dialled, besides the one that it comes from
  std::string serial;                  ///< lower-case hexadecimal
  std::string cluster;                 ///< of the one that issued it
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
  std::vector<std::string> addresses = {};  ///< each follows check_host(), kCertificateAddressesMax at most
};

/// Hosts that one certificate may name.
inline constexpr std::size_t kCertificateAddressesMax = 8;

/// A new Ed25519 key.
[[nodiscard]] UniqueKey make_key();
[[nodiscard]] KeyId key_id(EVP_PKEY* key);
/// The name of the cluster whose authority has this key: 16 hexadecimal digits of the key's id.
[[nodiscard]] std::string cluster_of(EVP_PKEY* authority_key);

/// Makes a certificate with a random serial. Its first alternative name names the node, "weightcast:USE/NAME"; each
/// further one is a host, "weightcast:address/HOST".
/// `authority` is null for the authority's own certificate, which `signer` then signs for itself.
[[nodiscard]] UniqueX509 make_certificate(const CertificateRequest& request, X509* authority, EVP_PKEY* signer);

/// Reads a certificate from anywhere. Errors: kCorrupt (not of the form that make_certificate() gives: a name that
/// breaks the rules, several names, a node's certificate that could sign others, another kind of key).
[[nodiscard]] Result<CertificateInfo> read_certificate(X509* certificate);

/// A certificate that an authority vouches for.
struct Vouched {
  CertificateInfo info;
  std::vector<std::string> serials;  ///< of it, and of each between it and the authority: none of them may be revoked
};

/// Certificates between a node's and the authority's. Theirs is the order, and nothing else of them is believed.
using Between = std::vector<X509*>;

/// Whether `authority` vouches for `certificate` at `now_unix_s`: it has issued the certificate itself, or one of
/// `between` that has. Of those between, an enrolment certificate vouches for workers alone, and an authority's
/// certificate that the authority has issued vouches for all that this one does. Errors (the detail begins with what is
/// wrong, for a text such as "FILE: ..."): kNotAllowed (another cluster's), kTimedOut (one of them has expired, or is
/// not valid yet), those of read_certificate().
[[nodiscard]] Result<Vouched> check_chain(X509* certificate, const Between& between, X509* authority,
                                          std::int64_t now_unix_s);
/// The same with nothing in between.
[[nodiscard]] Status check_issued(X509* certificate, X509* authority, std::int64_t now_unix_s);

/// "2027-11-22 16:40 UTC".
[[nodiscard]] std::string date_of(std::int64_t unix_s);
/// The host's clock.
[[nodiscard]] std::int64_t unix_now_s();

}  // namespace weightcast
