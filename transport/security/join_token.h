#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/peer_identity.h"
#include "base/result.h"
#include "transport/security/certificate.h"
#include "transport/security/owner_only_file.h"

namespace weightcast {

/// What a machine needs to enrol: whom to believe, and a secret that the origin believes.
struct JoinToken {
  KeyId authority;  ///< of the cluster
  std::array<std::byte, 8> id{};
  std::array<std::byte, 16> secret{};
};

/// "wcjoin_" and 76 characters.
[[nodiscard]] Secret to_text(const JoinToken& token);
/// Errors: kCorrupt.
[[nodiscard]] Result<JoinToken> parse_join_token(std::string_view text);

/// What a token allows.
struct TokenOrder {
  std::string names;  ///< a worker's name, or a pattern in which * stands for any characters
  std::uint32_t uses = 1;
  std::int64_t expires_unix_s = 0;
  std::uint32_t days = 365;  ///< how long the certificates count

  static constexpr std::uint32_t kUsesMax = 10'000;
  static constexpr std::int64_t kLifetimeMax_s = 7 * kDay_s;
};

/// The tokens of a directory that can still be used, `tokens.json`. It holds hashes of their secrets. Whoever uses an
/// object holds the directory's lock (KeyRegister). Writes are synced.
class OpenTokens {
 public:
  static constexpr std::size_t kTokensMax = 256;

  /// Errors: kCorrupt, kUnsupported (a later release wrote it), those of the files.
  [[nodiscard]] static Result<OpenTokens> read(const std::filesystem::path& directory);

  /// Makes a token, and writes it down; tokens that have expired go. Errors: kInvalidArgument (the order), kTooLarge
  /// (kTokensMax are open), those of the files.
  [[nodiscard]] Result<JoinToken> add(const KeyId& authority, const TokenOrder& order, std::int64_t now_unix_s);

  /// What the token with this id and secret allows. Errors: kNotAllowed (there is none, it has been used as often as it
  /// may be, or it has expired; a stranger does not learn which).
  [[nodiscard]] Result<TokenOrder> find(std::string_view id, std::string_view secret, std::int64_t now_unix_s) const;
  /// Takes one use of the token that find() has found, and writes that down.
  [[nodiscard]] Status use(std::string_view id);

 private:
  struct Entry {
    std::string id;           // hexadecimal
    std::string secret_hash;  // SHA-256, hexadecimal
    TokenOrder order;         // with the uses that are left
  };
  explicit OpenTokens(std::filesystem::path directory) : directory_(std::move(directory)) {}
  [[nodiscard]] Status write() const;

  std::filesystem::path directory_;
  std::vector<Entry> entries_;
};

}  // namespace weightcast
