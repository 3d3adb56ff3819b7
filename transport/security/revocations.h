#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "transport/security/openssl.h"

namespace weightcast {

/// The name of a file with such a list: beside keys, and in a node's state directory.
inline constexpr const char* kRevocationsFile = "revoked.pem";

/// A certificate that has been ended.
struct Revoked {
  std::string serial;  ///< lower-case hexadecimal
  /// From then on another one counts in its place, and what was signed before stays good. 0: revoked, so nothing that
  /// was ever signed with it counts.
  std::int64_t replaced_unix_s = 0;
};

/// The certificates of a cluster that no longer count, signed by its authority (X.509 revocation lists in PEM: one by
/// each authority that counts, all with the same number). Whoever has an authority's certificate can check it, so it
/// may come from anywhere. Empty by default.
class Revocations {
 public:
  Revocations() = default;

  /// Errors: kCorrupt (not such a list, or above kRevocationsBytesMax), kNotAllowed (none is signed by this authority).
  [[nodiscard]] static Result<Revocations> parse(const std::string& text, X509* authority);
  /// A signed list. `number` grows with each list.
  [[nodiscard]] static Revocations make(const std::vector<Revoked>& revoked, std::uint64_t number,
                                        std::int64_t now_unix_s, X509* authority, EVP_PKEY* authority_key);

  /// Whether what the certificate vouched for at `unix_s` does not count. `serial` is lower-case hexadecimal.
  [[nodiscard]] bool contains(const std::string& serial, std::int64_t unix_s) const;
  /// Of two lists the one with the greater number counts. 0: the empty list.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  /// With the lists of other authorities that came with it.
  [[nodiscard]] const std::string& to_pem() const { return text_; }

 private:
  UniqueCrl list_;
  std::uint64_t number_ = 0;
  std::string text_;
};

/// The newest of the lists that these directories hold, under the name kRevocationsFile; empty if there is none of this
/// authority's. Changes nothing. Errors: kCorrupt, those of the files.
[[nodiscard]] Result<Revocations> newest_revocations(FileSystem& files,
                                                     const std::vector<std::filesystem::path>& directories,
                                                     X509* authority);

}  // namespace weightcast
