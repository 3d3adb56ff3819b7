#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "transport/security/certificate.h"

namespace weightcast {

/// Signs `statement` with an Ed25519 key: 64 bytes, always the same ones.
[[nodiscard]] std::string sign_statement(EVP_PKEY* key, std::string_view statement);

inline constexpr std::size_t kSentCertificatesMax = 4;

/// Certificates as they travel: one behind the other.
[[nodiscard]] std::string to_der(X509* certificate, const Between& between);
/// The first, and those behind it. Errors: kNotAllowed (not one to kSentCertificatesMax certificates).
[[nodiscard]] Result<std::vector<UniqueX509>> from_der(std::string_view der);

/// Whether `certificate`, which may be from anywhere, is for signing manifests, counts at `unix_s` by check_chain(),
/// and made `signature` over `statement`. Errors: kNotAllowed (which of these is not so), kTimedOut (one of the chain
/// has expired, or is not valid yet).
[[nodiscard]] Result<Vouched> check_statement(std::string_view statement, std::string_view signature, X509* certificate,
                                              const Between& between, X509* authority, std::int64_t unix_s);

}  // namespace weightcast
