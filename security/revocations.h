#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "security/openssl.h"

namespace weightcast {

/// The certificates of a cluster that no longer count, signed by its authority (an X.509 revocation list in PEM).
/// Whoever has the authority's certificate can check it, so it may come from anywhere. Empty by default.
class Revocations {
 public:
  Revocations() = default;

  /// Errors: kCorrupt (not such a list, or above kRevocationsBytesMax), kNotAllowed (not signed by this authority).
  [[nodiscard]] static Result<Revocations> parse(const std::string& text, X509* authority);
  /// A signed list of these serials (lower-case hexadecimal). `number` grows with each list.
  [[nodiscard]] static Revocations make(const std::vector<std::string>& serials, std::uint64_t number,
                                        std::int64_t now_unix_s, X509* authority, EVP_PKEY* authority_key);

  [[nodiscard]] bool contains(X509* certificate) const;
  /// `serial` is lower-case hexadecimal.
  [[nodiscard]] bool contains(const std::string& serial) const;
  /// Of two lists the one with the greater number counts. 0: the empty list.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] std::string to_pem() const;

 private:
  UniqueCrl list_;
  std::uint64_t number_ = 0;
};

}  // namespace weightcast
