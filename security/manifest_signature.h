#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "security/certificate.h"

namespace weightcast {

/// Signs `statement` with an Ed25519 key: 64 bytes, always the same ones.
[[nodiscard]] std::string sign_statement(EVP_PKEY* key, std::string_view statement);

/// A certificate as it travels.
[[nodiscard]] std::string to_der(X509* certificate);
/// Errors: kNotAllowed (no certificate).
[[nodiscard]] Result<UniqueX509> from_der(std::string_view der);

/// Whether `certificate`, which may be from anywhere, is one that `authority` has issued for signing manifests, counts
/// at `now_unix_s`, and made `signature` over `statement`. Returns what the certificate says. Errors: kNotAllowed
/// (which of these is not so), kTimedOut (it has expired, or is not valid yet).
[[nodiscard]] Result<CertificateInfo> check_statement(std::string_view statement, std::string_view signature,
                                                      X509* certificate, X509* authority, std::int64_t now_unix_s);

}  // namespace weightcast
